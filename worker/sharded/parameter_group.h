#pragma once

#include <optional>
#include <string>
#include <vector>

namespace zerod {

/// Settings of the parameters whose name matches a regular expression (ECMAScript, the whole name
/// or a part of it). A field that isn't set leaves what earlier groups said.
struct ParameterGroup {
  std::string pattern;
  std::optional<float> lr_scale = {};  ///< learning-rate multiplier
  std::optional<bool> decay = {};      ///< whether weight decay applies
  std::optional<bool> train = {};      ///< false freezes: 0 bytes of gradient and optimizer state
};

/// What holds for one parameter; the defaults are those of a parameter without any group.
struct ParameterSettings {
  float lr_scale = 1.0f;
  bool decay = true;
  bool train = true;

  bool operator==(const ParameterSettings&) const = default;
};

/// For each field, the last group that matches `name` and sets the field counts. Throws Error
/// (kInvalidArgument) that names a pattern which isn't a regular expression.
ParameterSettings SettingsOf(const std::vector<ParameterGroup>& groups, const std::string& name);

/// Whether a pattern matches a name or a part of it. Throws like SettingsOf.
bool PatternMatches(const std::string& pattern, const std::string& name);

}  // namespace zerod
