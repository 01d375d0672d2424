#include "worker/neox/json_text.h"

#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "proto/contract/error.h"

namespace zerod::neox {
namespace {

constexpr int kMaxDepth = 16;
constexpr size_t kMaxValues = 1 << 20;

/// The start of a text from a file, fit for a message: it may be long and need not be UTF-8.
std::string Quoted(std::string text) {
  constexpr size_t kShownBytes = 200;
  if (text.size() > kShownBytes) text = text.substr(0, kShownBytes) + "...";
  for (char& letter : text) {
    if (static_cast<unsigned char>(letter) < ' ' || static_cast<unsigned char>(letter) > '~') {
      letter = '?';
    }
  }
  return text;
}

/// Watches the parser's events for repeated keys and for depth. The parser itself would keep the
/// last of two equal keys.
class Watcher {
 public:
  explicit Watcher(const std::string& where) : where_(where) {}

  bool operator()(int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > kMaxDepth) Fail("it is nested too deeply");
    if (++values_ > kMaxValues) Fail("it has too many values");
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) {
        Fail("the key '" + Quoted(key) + "' occurs twice");
      }
    }
    return true;
  }

 private:
  [[noreturn]] void Fail(const std::string& why) const {
    throw Error(ErrorCode::kDataLoss, Concat(where_, " is not usable: ", why));
  }

  const std::string& where_;
  std::vector<std::set<std::string>> keys_;
  size_t values_ = 0;
};

}  // namespace

nlohmann::json ParseJsonObject(std::string_view text, const std::string& where) {
  Watcher watcher(where);
  nlohmann::json parsed;
  try {
    parsed = nlohmann::json::parse(text, std::ref(watcher));
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kDataLoss, Concat(where, " is not valid JSON: ", Quoted(error.what())));
  }
  if (!parsed.is_object()) {
    throw Error(ErrorCode::kDataLoss, Concat(where, " is not a JSON object"));
  }
  return parsed;
}

}  // namespace zerod::neox
