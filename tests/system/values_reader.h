#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

namespace zerod {

/// Takes apart what a rank brought back, in the order in which it was put together. Asking for more
/// than there is throws std::out_of_range.
class ValueReader {
 public:
  explicit ValueReader(std::vector<double> values) : values_(std::move(values)) {}

  double Next();
  /// The next elements as a float64 tensor.
  at::Tensor Next(at::IntArrayRef sizes);
  std::vector<float> NextFloats(size_t numel);
  bool AtEnd() const { return at_ == values_.size(); }

 private:
  std::vector<double> values_;
  size_t at_ = 0;
};

/// |actual - expected| / |expected|, in float64; 0 if both are all zero.
double RelativeL2(const at::Tensor& actual, const at::Tensor& expected);

}  // namespace zerod
