#pragma once

#include "client/session.h"

namespace zerod {

inline constexpr size_t kJobIdBytesMax = 120;

/// Throws Error (kInvalidArgument) naming the first option that can't work anywhere.
void CheckOptions(const SessionOptions& options);

}  // namespace zerod
