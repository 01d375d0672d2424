#include "server/engine/reduce_buffers.h"

#include <algorithm>
#include <limits>

namespace zerod {

std::vector<std::span<float>> ReduceBuffers::Take(size_t count, int64_t numel) {
  constexpr int64_t kStepNumel = static_cast<int64_t>(kAlignment) / sizeof(float);
  const int64_t stride_numel = (numel + kStepNumel - 1) / kStepNumel * kStepNumel;
  const int64_t total_numel = static_cast<int64_t>(count) * stride_numel;
  if (total_numel > capacity_numel_) {
    values_.reset();  // before the larger one is there: both together might not fit
    capacity_numel_ = 0;
    values_.reset(new (kAlignment) float[total_numel]);
    capacity_numel_ = total_numel;
  }
  if (poison_) std::fill_n(values_.get(), total_numel, std::numeric_limits<float>::quiet_NaN());
  std::vector<std::span<float>> arrays;
  for (size_t i = 0; i < count; ++i) {
    arrays.emplace_back(values_.get() + i * stride_numel, numel);
  }
  return arrays;
}

}  // namespace zerod
