#pragma once

#include "proto/peer.pb.h"
#include "server/engine/peer_link.h"

namespace zerod {

inline constexpr int kPeerMessageBytesMax = 32 << 20;

/// Messages of the engine to protobuf and back. FromMessage trusts nothing: what it returns has
/// known enum values and consistent lengths, everything else is Error (kInvalidArgument) that names
/// the field. A hello isn't a message of the engine and refused, too.
v1::PeerMessage ToMessage(const PeerMessage& message);
PeerMessage FromMessage(const v1::PeerMessage& message);

}  // namespace zerod
