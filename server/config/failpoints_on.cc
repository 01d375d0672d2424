#include <chrono>
#include <string>
#include <vector>

#include "proto/contract/error.h"
#include "server/config/option_table.h"
#include "server/config/values.h"

namespace zerod {
namespace {

constexpr int64_t kDelayMsMax = 600'000;
constexpr int64_t kIndexMax = 1'000'000;

void Set(const std::string& name, const std::string& value, Failpoints& failpoints) {
  if (name == "gather_delay_ms") {
    failpoints.gather_delay = std::chrono::milliseconds(ReadInteger(value, 0, kDelayMsMax));
  } else if (name == "update_delay_ms") {
    failpoints.update_delay = std::chrono::milliseconds(ReadInteger(value, 0, kDelayMsMax));
  } else if (name == "update_delay_layer") {
    failpoints.update_delay_layer = static_cast<int>(ReadInteger(value, -1, kIndexMax));
  } else if (name == "update_delay_rank") {
    failpoints.update_delay_rank = static_cast<int>(ReadInteger(value, -1, kIndexMax));
  } else if (name == "poison_fresh_memory") {
    failpoints.poison_fresh_memory = ReadBool(value);
  } else {
    throw Error(ErrorCode::kInvalidArgument,
                "gather_delay_ms, update_delay_ms, update_delay_layer, update_delay_rank or "
                "poison_fresh_memory");
  }
}

void Apply(const std::string& text, ServerOptions& options) {
  options.engine.failpoints = {};
  for (const std::string& part : SplitTrimmed(text, ',')) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) {
      throw Error(ErrorCode::kInvalidArgument,
                  Concat("NAME=VALUE, separated by commas ('", part, "' has no =)"));
    }
    const std::string name = part.substr(0, equals);
    try {
      Set(name, part.substr(equals + 1), options.engine.failpoints);
    } catch (const Error& error) {
      throw Error(ErrorCode::kInvalidArgument, Concat("for '", name, "': ", error.what()));
    }
  }
}

}  // namespace

void AppendFailpointOption(std::vector<OptionEntry>& table) {
  table.push_back({"failpoints", "NAME=VALUE,...",
                   "Faults to inject (test builds only): gather_delay_ms, update_delay_ms, "
                   "update_delay_layer, update_delay_rank, poison_fresh_memory",
                   "", true, Apply});
}

}  // namespace zerod
