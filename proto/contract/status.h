#pragma once

#include <grpcpp/support/status.h>

#include "proto/contract/error.h"

namespace zerod {

/// The two translations at the RPC edge. Every ErrorCode has its own gRPC code; messages that
/// wouldn't fit the trailing metadata are cut.
grpc::Status ToStatus(const Error& error);

/// Throws the Error that `status` stands for unless it is OK. gRPC codes that no Error has become
/// the nearest one: a cancelled call is kAborted, one that the server lacks kFailedPrecondition.
void ThrowIfError(const grpc::Status& status);

}  // namespace zerod
