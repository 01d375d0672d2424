#pragma once

#include <map>
#include <string>
#include <vector>

namespace zerod {

/// Reads a TOML file of `name = value` lines (a list of strings counts as its comma-separated
/// text). Throws Error (kInvalidArgument): the file can't be read, a key isn't in `known_names` or
/// is there twice; names file and key.
std::map<std::string, std::string> ReadConfigFile(const std::string& path,
                                                  const std::vector<std::string>& known_names);

}  // namespace zerod
