#pragma once

#include "proto/session.pb.h"
#include "server/engine/engine.h"

namespace zerod {

/// Reads the first message of a worker. Throws Error: kFailedPrecondition for another protocol
/// version (naming both), kInvalidArgument for a field that no worker may send.
AttachRequest ReadHello(const v1::Hello& hello);

}  // namespace zerod
