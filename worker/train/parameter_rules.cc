#include "worker/train/parameter_rules.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "proto/contract/error.h"

namespace zerod::train {
namespace {

[[noreturn]] void Refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

/// Calls visit(option, pattern) for every pattern.
void ForEachPattern(const ParameterRules& rules,
                    const std::function<void(const char*, const std::string&)>& visit) {
  for (const std::string& pattern : rules.freeze) visit("--freeze", pattern);
  for (const std::string& pattern : rules.train) visit("--train", pattern);
  for (const std::string& pattern : rules.no_decay) visit("--no-decay", pattern);
  for (const RateRule& rule : rules.rates) visit("--lr-scale", rule.pattern);
}

}  // namespace

RateRule RateRule::Parse(const std::string& text) {
  const size_t equals = text.rfind('=');
  RateRule rule;
  if (equals != std::string::npos && equals > 0) {
    rule.pattern = text.substr(0, equals);
    const char* const begin = text.data() + equals + 1;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(begin, end, rule.factor);
    if (error == std::errc() && stop == end && std::isfinite(rule.factor) && rule.factor >= 0) {
      return rule;
    }
  }
  Refuse(Concat("--lr-scale is \"", text, "\"; give REGEX=X with a factor X from 0 on"));
}

std::vector<ParameterGroup> GroupsOf(const ParameterRules& rules) {
  std::vector<ParameterGroup> groups;
  if (!rules.train.empty()) groups.push_back({.pattern = ".", .train = false});
  for (const std::string& pattern : rules.train) {
    groups.push_back({.pattern = pattern, .train = true});
  }
  for (const std::string& pattern : rules.freeze) {
    groups.push_back({.pattern = pattern, .train = false});
  }
  for (const std::string& pattern : rules.no_decay) {
    groups.push_back({.pattern = pattern, .decay = false});
  }
  for (const RateRule& rule : rules.rates) {
    groups.push_back({.pattern = rule.pattern, .lr_scale = rule.factor});
  }
  return groups;
}

void CheckPatterns(const ParameterRules& rules) {
  ForEachPattern(rules, [](const char* option, const std::string& pattern) {
    try {
      PatternMatches(pattern, "");
    } catch (const Error& error) {
      Refuse(Concat(option, ": ", error.what()));
    }
  });
}

void CheckMatches(const ParameterRules& rules, const std::vector<std::string>& names) {
  ForEachPattern(rules, [&](const char* option, const std::string& pattern) {
    const bool matches = std::ranges::any_of(
        names, [&](const std::string& name) { return PatternMatches(pattern, name); });
    if (matches) return;
    Refuse(Concat(option, " '", pattern, "' matches none of the model's ", names.size(),
                  " parameters; they have names like ", names[names.size() / 2]));
  });
}

}  // namespace zerod::train
