#pragma once

#include <cstdint>

namespace zerod {

/// Proportional set size of this process: shared pages count by their share. -1 where the kernel
/// doesn't tell.
int64_t ProcessPssBytes();

}  // namespace zerod
