#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace zerod::neox {

/// Parses one JSON object. Refuses what is usually a mistake or an attack: a key that occurs twice
/// in an object, more than 16 levels of nesting or a million values, anything after the object.
/// Throws Error(kDataLoss) that starts with `where` (a file and what in it).
nlohmann::json ParseJsonObject(std::string_view text, const std::string& where);

}  // namespace zerod::neox
