#include "worker/sharded/parameter_group.h"

#include <regex>

#include "proto/contract/error.h"

namespace zerod {
namespace {

constexpr size_t kLongestPattern = 4096;

}  // namespace

bool PatternMatches(const std::string& pattern, const std::string& name) {
  if (pattern.size() > kLongestPattern) {  // libstdc++ recurses once per character
    throw Error(ErrorCode::kInvalidArgument,
                Concat("a regular expression has ", pattern.size(), " characters; at most ",
                       kLongestPattern, " are allowed"));
  }
  try {
    // Polynomial: some patterns would take longer than a lifetime with backtracking.
    constexpr auto kFlags = std::regex::ECMAScript | std::regex_constants::__polynomial;
    return std::regex_search(name, std::regex(pattern, kFlags));
  } catch (const std::regex_error& error) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("'", pattern, "' isn't a regular expression: ", error.what()));
  }
}

ParameterSettings SettingsOf(const std::vector<ParameterGroup>& groups, const std::string& name) {
  ParameterSettings settings;
  for (const ParameterGroup& group : groups) {
    if (!PatternMatches(group.pattern, name)) continue;
    settings.lr_scale = group.lr_scale.value_or(settings.lr_scale);
    settings.decay = group.decay.value_or(settings.decay);
    settings.train = group.train.value_or(settings.train);
  }
  return settings;
}

}  // namespace zerod
