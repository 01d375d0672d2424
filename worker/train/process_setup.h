#pragma once

#include <cstdint>

namespace zerod::train {

/// Fits the C library's allocator and LibTorch's thread pool to training. Call it first, once.
void SetUpProcess(int64_t threads);

}  // namespace zerod::train
