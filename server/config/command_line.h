#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "server/config/server_options.h"

namespace zerod {

/// Looks up one environment variable.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// The environment of this process. The only place of the daemon that reads it.
Environment ProcessEnvironment();

/// What the daemon is asked to do.
enum class StartMode { kServe, kPrintAndExit };

struct StartRequest {
  StartMode mode = StartMode::kServe;
  ServerOptions options;
  std::string text;  ///< for kPrintAndExit: what goes to stdout
};

/// Reads the options: command line before environment before file before default. `arguments` are
/// without the program's name. Opens no socket. Throws Error (kInvalidArgument) with one line that
/// names option, value, source and what is allowed, or file and unknown key.
StartRequest ReadCommandLine(const std::vector<std::string>& arguments,
                             const Environment& environment, const std::string& version);

}  // namespace zerod
