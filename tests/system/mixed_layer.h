#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

namespace zerod {

/// A layer with one tensor of each kind: bfloat16 and float32, trainable and frozen. Values by
/// Formula, so that every process has the same.
class MixedLayerImpl : public torch::nn::Cloneable<MixedLayerImpl> {
 public:
  MixedLayerImpl(int64_t in, int64_t out, int64_t seed) : in_(in), out_(out), seed_(seed) {
    MixedLayerImpl::reset();
  }
  void reset() override;
  /// (x weight^T) gain + offset + shift, the product in bfloat16; gives float32.
  at::Tensor forward(const at::Tensor& x) const;

  at::Tensor weight;  // bfloat16 [out, in]
  at::Tensor gain;    // float32 [out]
  at::Tensor offset;  // bfloat16 [out], frozen
  at::Tensor shift;   // float32 [out], frozen

 private:
  int64_t in_;
  int64_t out_;
  int64_t seed_;
};
TORCH_MODULE(MixedLayer);

}  // namespace zerod
