#include "worker/neox/json_text.h"

#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "proto/contract/error.h"

namespace zerod::neox {
namespace {

constexpr int kMaxDepth = 16;

/// Watches the parser's events for repeated keys and for depth. The parser itself would keep the
/// last of two equal keys.
class Watcher {
 public:
  explicit Watcher(const std::string& where) : where_(where) {}

  bool operator()(int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > kMaxDepth) Fail("it is nested too deeply");
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) Fail("the key '" + key + "' occurs twice");
    }
    return true;
  }

 private:
  [[noreturn]] void Fail(const std::string& why) const {
    throw Error(ErrorCode::kDataLoss, Concat(where_, " is not usable: ", why));
  }

  const std::string& where_;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

nlohmann::json ParseJsonObject(std::string_view text, const std::string& where) {
  Watcher watcher(where);
  nlohmann::json parsed;
  try {
    parsed = nlohmann::json::parse(text, std::ref(watcher));
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kDataLoss, Concat(where, " is not valid JSON: ", error.what()));
  }
  if (!parsed.is_object()) {
    throw Error(ErrorCode::kDataLoss, Concat(where, " is not a JSON object"));
  }
  return parsed;
}

}  // namespace zerod::neox
