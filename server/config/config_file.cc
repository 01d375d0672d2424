#include "server/config/config_file.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>

#include "proto/contract/error.h"

namespace zerod {
namespace {

/// CLI11 marks where a section begins and ends by items with these names.
bool IsSectionMark(const CLI::ConfigItem& item) { return item.name == "++" || item.name == "--"; }

std::string JoinWithCommas(const std::vector<std::string>& parts) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "" : ",") + parts[i];
  return text;
}

/// CLI11 takes quotes away in pairs and leaves one that isn't closed in the value.
void RequireClosedQuotes(const std::string& value, const std::string& key,
                         const std::string& path) {
  if (value.find_first_of("\"'") == std::string::npos) return;
  throw Error(ErrorCode::kInvalidArgument,
              Concat("key '", key, "' in ", path, " has a quote that isn't closed: ", value));
}

std::vector<CLI::ConfigItem> ParseFile(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("--config: ", path, " is a folder; give a TOML file"));
  }
  errno = 0;
  std::ifstream file(path);
  if (!file) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("--config: cannot read ", path, ": ", ErrnoText(errno)));
  }
  try {
    return CLI::ConfigTOML().from_config(file);
  } catch (const CLI::Error& error) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("--config: ", path, " is not valid TOML: ", error.what()));
  }
}

}  // namespace

std::map<std::string, std::string> ReadConfigFile(const std::string& path,
                                                  const std::vector<std::string>& known_names) {
  std::map<std::string, std::string> values;
  for (const CLI::ConfigItem& item : ParseFile(path)) {
    if (IsSectionMark(item)) continue;
    const std::string key = item.fullname();
    if (std::find(known_names.begin(), known_names.end(), key) == known_names.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  Concat("unknown key '", key, "' in ", path,
                         "; known keys: ", JoinWithCommas(known_names)));
    }
    for (const std::string& input : item.inputs) RequireClosedQuotes(input, key, path);
    if (!values.emplace(key, JoinWithCommas(item.inputs)).second) {
      throw Error(ErrorCode::kInvalidArgument, Concat("key '", key, "' is twice in ", path));
    }
  }
  return values;
}

}  // namespace zerod
