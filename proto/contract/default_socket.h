#pragma once

#include <string>

namespace zerod {

/// Control socket that daemon, zeroctl and workers use when nobody names one: a folder of the
/// user's own below the runtime folder (XDG_RUNTIME_DIR), or below /tmp where there is none.
inline std::string DefaultSocketPath(const std::string& runtime_dir, unsigned user_id) {
  const std::string base = runtime_dir.empty() ? "/tmp" : runtime_dir;
  return base + "/zerod-" + std::to_string(user_id) + "/zerod.sock";
}

}  // namespace zerod
