#pragma once

#include <string>
#include <vector>

#include <torch/nn/modules/linear.h>

#include "worker/sharded/sharded_sequential.h"

namespace zerod {

/// A two-layer network with a tanh between, small enough for exact comparisons: 4 -> 6 -> 3.
/// Values by a closed formula, so that every process has the same without talking.
inline constexpr int64_t kInput = 4;
inline constexpr int64_t kHidden = 6;
inline constexpr int64_t kOutput = 3;

/// value[i] = ((i * 37 + seed * 11) mod 19 - 9) / 16: exact in float32.
at::Tensor Formula(at::IntArrayRef sizes, int64_t seed);

/// A linear layer whose weight and bias come from Formula.
torch::nn::Linear FormulaLinear(int64_t in, int64_t out, int64_t seed);

/// Layers "first", "tanh" (without parameters), "second".
void AddSmallModel(ShardedSequential& model);

/// The same in plain LibTorch: parameters 64-byte aligned, in registration order.
struct PlainModel {
  torch::nn::Linear first;
  torch::nn::Linear second;
  PlainModel();
  at::Tensor Forward(const at::Tensor& input);
  std::vector<at::Tensor> Parameters() const;
};

/// Batch `index` of `rows` samples.
at::Tensor InputBatch(int64_t index, int64_t rows);
at::Tensor TargetBatch(int64_t index, int64_t rows);

/// Mean squared error.
at::Tensor LossOf(const at::Tensor& output, const at::Tensor& target);

/// Flattens to doubles and back, to carry values out of a rank's process.
void Append(std::vector<double>& values, const at::Tensor& tensor);
std::vector<double> Values(const std::vector<at::Tensor>& tensors);

}  // namespace zerod
