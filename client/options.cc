#include "client/options.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "proto/contract/descriptor.h"
#include "proto/contract/operation.h"

namespace zerod {
namespace {

void Require(bool condition, const std::string& message) {
  if (!condition) throw Error(ErrorCode::kInvalidArgument, message);
}

void ReadNumber(const char* variable, int& value) {
  const char* const found = std::getenv(variable);
  if (found == nullptr) return;
  const std::string_view text = found;
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  Require(error == std::errc() && end == text.data() + text.size() && number >= 0,
          Concat("the environment variable ", variable, " is \"", text,
                 "\"; it must be a number from 0"));
  value = number;
}

void ReadText(const char* variable, std::string& value) {
  if (const char* const found = std::getenv(variable); found != nullptr) value = found;
}

void CheckSocketPath(const std::string& path) {
  Require(!path.empty(), "no daemon was named; set ZEROD_SOCKET to the path of its socket");
  const size_t longest = kSocketPathBytesMax - DescriptorSocketPath("").size();
  Require(path.size() <= longest, Concat("the socket path ", path, " has ", path.size(),
                                         " bytes; at most ", longest, " are possible"));
}

}  // namespace

SessionOptions SessionOptions::FromEnvironment() {
  SessionOptions options;
  ReadNumber("RANK", options.rank);
  ReadNumber("WORLD_SIZE", options.world_size);
  ReadNumber("LOCAL_RANK", options.local_rank);
  ReadText("ZEROD_SOCKET", options.socket_path);
  ReadText("ZEROD_JOB", options.job_id);
  return options;
}

void CheckOptions(const SessionOptions& options) {
  CheckSocketPath(options.socket_path);
  Require(options.world_size >= 1, Concat("a world size of ", options.world_size));
  Require(options.rank >= 0 && options.rank < options.world_size,
          Concat("rank ", options.rank, " in a world of ", options.world_size,
                 "; set RANK and WORLD_SIZE"));
  Require(options.local_rank >= 0 && options.local_rank <= options.rank,
          Concat("local rank ", options.local_rank, " of rank ", options.rank));
  Require(options.tensor_parallel >= 1 && options.world_size % options.tensor_parallel == 0,
          Concat("tensor-parallel groups of ", options.tensor_parallel,
                 " ranks don't divide a world of ", options.world_size));
  Require(!options.job_id.empty() && options.job_id.size() <= kJobIdBytesMax,
          Concat("the job id has ", options.job_id.size(), " bytes; 1 to ", kJobIdBytesMax,
                 " are possible"));
  Require(options.window_bytes >= 0, Concat("a window of ", options.window_bytes, " bytes"));
  Require(options.cache_bytes >= -1, Concat("a cache of ", options.cache_bytes, " bytes"));
  Require(options.gradient_slots >= 1, Concat(options.gradient_slots, " gradient slots"));
}

}  // namespace zerod
