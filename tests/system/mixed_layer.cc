#include "tests/system/mixed_layer.h"

#include <ATen/ops/linear.h>
#include <c10/core/GradMode.h>

#include "tests/system/small_model.h"

namespace zerod {

void MixedLayerImpl::reset() {
  weight = register_parameter("weight", Formula({out_, in_}, seed_).to(at::kBFloat16));
  gain = register_parameter("gain", Formula({out_}, seed_ + 1));
  offset = register_parameter("offset", Formula({out_}, seed_ + 2).to(at::kBFloat16), false);
  shift = register_parameter("shift", Formula({out_}, seed_ + 3), false);
}

at::Tensor MixedLayerImpl::forward(const at::Tensor& x) const {
  const at::Tensor product = at::linear(x.to(at::kBFloat16), weight).to(at::kFloat);
  return product * gain + offset.to(at::kFloat) + shift;
}

}  // namespace zerod
