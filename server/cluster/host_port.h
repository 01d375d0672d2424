#pragma once

#include <string>

namespace zerod {

struct HostPort {
  std::string host;  ///< without brackets
  int port = 0;
};

/// Splits "host:7000", "10.0.0.1:7000" or "[::1]:7000". Throws Error kInvalidArgument.
HostPort ParseHostPort(const std::string& text);

}  // namespace zerod
