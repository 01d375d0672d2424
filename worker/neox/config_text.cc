#include "worker/neox/config_text.h"

#include <nlohmann/json.hpp>

#include "proto/contract/error.h"
#include "worker/neox/json_text.h"

namespace zerod::neox {
namespace {

constexpr const char* kNewKey = "dtype";
constexpr const char* kOldKey = "torch_dtype";
constexpr const char* kClasses = "architectures";

}  // namespace

std::string ConfigText(const std::string& text, const std::string& where,
                       std::optional<DType> dtype) {
  ParseJsonObject(text, where);  // refuses what the parser below would let pass
  const auto before = nlohmann::ordered_json::parse(text);
  auto config = before;
  if (dtype) {
    // Old readers know the old key only, new ones both.
    const bool old_only = !config.contains(kNewKey);
    if (old_only || config.contains(kOldKey)) config[kOldKey] = DTypeName(*dtype);
    if (!old_only) config[kNewKey] = DTypeName(*dtype);
  }
  if (!config.contains(kClasses) || config[kClasses].is_null()) {
    config[kClasses] = {"GPTNeoXForCausalLM"};
  }
  return config == before ? text : config.dump(2) + "\n";
}

}  // namespace zerod::neox
