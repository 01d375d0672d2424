#pragma once

#include <string>

namespace zerod {

/// Why a TCP socket can't listen on an address.
struct ListenFailure {
  bool in_use = false;
  std::string reason;  ///< in words, e.g. "Address already in use"
};

/// Finds out by trying, because gRPC keeps the reason for its log. `address` is HOST:PORT.
ListenFailure WhyNotListening(const std::string& address);

}  // namespace zerod
