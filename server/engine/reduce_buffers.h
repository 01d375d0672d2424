#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

namespace zerod {

/// One lane's memory for what a reduce sends to and receives from other nodes. It grows to the
/// largest chunk and then stays, so that a step neither allocates nor faults pages in. Used by the
/// lane's thread only.
class ReduceBuffers {
 public:
  /// With `poison` every Take fills what it returns with NaN.
  explicit ReduceBuffers(bool poison) : poison_(poison) {}

  /// `count` arrays of `numel` floats, 64-byte aligned. They hold anything, and are valid until the
  /// next call.
  std::vector<std::span<float>> Take(size_t count, int64_t numel);

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(float* values) const { ::operator delete[](values, kAlignment); }
  };

  const bool poison_;
  int64_t capacity_numel_ = 0;
  std::unique_ptr<float[], Free> values_;
};

}  // namespace zerod
