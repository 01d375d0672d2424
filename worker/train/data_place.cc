#include "worker/train/data_place.h"

#include <nlohmann/json.hpp>

namespace zerod::train {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const DataPlace& place) {
  return {{"--batch", place.batch},
          {"--seq", place.seq},
          {"number of training tokens", place.train_tokens},
          {"--shuffle", place.shuffle_seed ? Json(*place.shuffle_seed) : Json("off")}};
}

}  // namespace

std::string DataPlace::ToText() const { return ToJson(*this).dump(); }

std::string DataPlace::DifferenceFrom(const std::string& text) const {
  const Json before = Json::parse(text, nullptr, false);
  if (!before.is_object()) return "";
  std::string difference;
  const Json now = ToJson(*this);
  for (const auto& [key, value] : now.items()) {
    const auto found = before.find(key);
    if (found == before.end() || *found == value) continue;
    difference += (difference.empty() ? "" : ", ") + key + " was " + found->dump() + " and is " +
                  value.dump();
  }
  return difference;
}

}  // namespace zerod::train
