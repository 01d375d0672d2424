#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/config/server_options.h"

namespace zerod {

/// One option: how it is called and what its text does. The same name serves the command line
/// (--late-warning-ms), the environment (ZEROD_LATE_WARNING_MS) and the file (late-warning-ms).
struct OptionEntry {
  std::string name;         ///< without dashes, e.g. "late-warning-ms"
  std::string placeholder;  ///< for the help, e.g. "MS"
  std::string help;
  std::string default_value;  ///< in the form a user would write it
  bool quoted = false;        ///< whether --print-config writes it as a string
  /// Reads the text into the options. Throws Error with what is allowed (server/config/values.h).
  std::function<void(const std::string&, ServerOptions&)> apply;
};

/// All options of the daemon but --config. `default_socket_path` is computed by the caller because
/// it depends on the environment.
std::vector<OptionEntry> OptionTable(const std::string& default_socket_path);

/// Appends the option that injects faults, if this build has fault injection. Two files implement
/// it; the build chooses.
void AppendFailpointOption(std::vector<OptionEntry>& table);

}  // namespace zerod
