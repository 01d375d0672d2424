#pragma once

#include <optional>
#include <string>

#include "proto/peer.pb.h"

namespace zerod {

/// Why the two ends of a link don't belong together, naming both values and what to do; nothing if
/// they do. `caller` opened the link, `callee` was called. Both ends ask, each with its own hello
/// as one of the two, so each can tell the reason to its user.
std::optional<std::string> Mismatch(const v1::PeerHello& caller, const v1::PeerHello& callee);

}  // namespace zerod
