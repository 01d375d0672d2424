#pragma once

#include <string>
#include <vector>

#include "worker/sharded/parameter_group.h"

namespace zerod::train {

/// A learning-rate factor and whom it is for.
struct RateRule {
  std::string pattern;
  float factor = 1.0f;

  /// From "PATTERN=FACTOR"; the last = divides. Throws Error(kInvalidArgument) with the text.
  static RateRule Parse(const std::string& text);
};

/// What a command line says of parameters by their names. Patterns match a part of a name.
/// A parameter is trained if some pattern of `train` matches it, or `train` is empty, and no
/// pattern of `freeze` does. Of several rates the last that matches counts.
struct ParameterRules {
  std::vector<std::string> freeze = {};
  std::vector<std::string> train = {};
  std::vector<std::string> no_decay = {};
  std::vector<RateRule> rates = {};
};

/// The same as groups of a sharded model.
std::vector<ParameterGroup> GroupsOf(const ParameterRules& rules);

/// Throws Error(kInvalidArgument) that names the option and its pattern if it isn't a regular
/// expression.
void CheckPatterns(const ParameterRules& rules);

/// Throws Error(kInvalidArgument) that names the option and its pattern if it matches none of the
/// model's parameters, which is usually a mistake.
void CheckMatches(const ParameterRules& rules, const std::vector<std::string>& names);

}  // namespace zerod::train
