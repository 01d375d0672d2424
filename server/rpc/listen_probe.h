#pragma once

#include <string>

namespace zerod {

/// Why a TCP socket can't listen on HOST:PORT, in words, e.g. "Address already in use". gRPC itself
/// keeps the reason for its log.
std::string WhyNotListening(const std::string& address);

}  // namespace zerod
