#include "server/rpc/hello.h"

#include <string>

#include "proto/contract/error.h"

namespace zerod {
namespace {

constexpr size_t kJobIdBytesMax = 120;
constexpr size_t kProgramBytesMax = 256;
constexpr int kGradientSlotsMax = 64;
constexpr int kWorldSizeMax = 1 << 20;

template <typename... Args>
void Require(bool condition, const Args&... message) {
  if (!condition) throw Error(ErrorCode::kInvalidArgument, Concat(message...));
}

void RequireJobId(const std::string& job_id) {
  constexpr const char* kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  Require(!job_id.empty() && job_id.size() <= kJobIdBytesMax &&
              job_id.find_first_not_of(kAllowed) == std::string::npos,
          "the job id has ", job_id.size(), " bytes; give 1 to ", kJobIdBytesMax,
          " letters, digits, dots, dashes and underscores");
}

}  // namespace

AttachRequest ReadHello(const v1::Hello& hello) {
  if (hello.protocol_version() != kProtocolVersion) {
    throw Error(ErrorCode::kFailedPrecondition,
                Concat("this zerod speaks protocol version ", kProtocolVersion,
                       ", the worker speaks version ", hello.protocol_version(),
                       "; use the same release of both"));
  }
  RequireJobId(hello.job_id());
  Require(
      hello.mode() >= v1::ATTACH_MODE_CREATE && hello.mode() <= v1::ATTACH_MODE_ATTACH_OR_CREATE,
      "unknown attach mode ", static_cast<int>(hello.mode()));
  Require(hello.world_size() >= 1 && hello.world_size() <= kWorldSizeMax, "world size ",
          hello.world_size(), " is not in 1 to ", kWorldSizeMax);
  Require(hello.rank() >= 0 && hello.rank() < hello.world_size(), "rank ", hello.rank(),
          " is not in 0 to ", hello.world_size() - 1, " (the world size is ", hello.world_size(),
          ")");
  Require(hello.local_rank() >= 0, "local rank ", hello.local_rank(), " is negative");
  Require(hello.tensor_parallel() >= 1 && hello.tensor_parallel() <= hello.world_size(),
          "tensor_parallel ", hello.tensor_parallel(), " is not in 1 to ", hello.world_size());
  Require(hello.program().size() <= kProgramBytesMax, "the program's name has ",
          hello.program().size(), " bytes; at most ", kProgramBytesMax, " are possible");
  Require(hello.window_bytes() >= 0, "window_bytes ", hello.window_bytes(), " is negative");
  Require(hello.cache_bytes() >= -1, "cache_bytes ", hello.cache_bytes(), " is below -1");
  Require(hello.gradient_slots() >= 1 && hello.gradient_slots() <= kGradientSlotsMax,
          "gradient_slots ", hello.gradient_slots(), " is not in 1 to ", kGradientSlotsMax);
  return {.job_id = hello.job_id(),
          .mode = static_cast<int>(hello.mode()),
          .rank = hello.rank(),
          .world_size = hello.world_size(),
          .local_rank = hello.local_rank(),
          .tensor_parallel = hello.tensor_parallel(),
          .pid = hello.pid(),
          .program = hello.program(),
          .window_bytes = hello.window_bytes(),
          .cache_bytes = hello.cache_bytes(),
          .gradient_slots = hello.gradient_slots()};
}

}  // namespace zerod
