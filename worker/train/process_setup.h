#pragma once

#include <cstdint>

namespace zerod::train {

/// Fits the C library's allocator and LibTorch's thread pool to training. Call it first, once.
void SetUpProcess(int64_t threads);

/// Of this process until now.
struct ProcessUse {
  int64_t minor_faults = 0;
  int64_t peak_resident_bytes = 0;
};
ProcessUse MeasureProcess();

}  // namespace zerod::train
