#pragma once

#include <cstdint>

namespace zerod::train {

/// Fits the C library's allocator, LibTorch's thread pool and the handling of a limit on file sizes
/// to training. Call it first, once.
void SetUpProcess(int64_t threads);

}  // namespace zerod::train
