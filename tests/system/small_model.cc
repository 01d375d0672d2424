#include "tests/system/small_model.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/tanh.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/activation.h>

namespace zerod {

at::Tensor Formula(at::IntArrayRef sizes, int64_t seed) {
  int64_t numel = 1;
  for (int64_t size : sizes) numel *= size;
  const at::Tensor index = at::arange(numel, at::kLong);
  return ((index * 37 + seed * 11).remainder(19) - 9).to(at::kFloat).div(16).reshape(sizes);
}

torch::nn::Linear FormulaLinear(int64_t in, int64_t out, int64_t seed) {
  const c10::NoGradGuard no_grad;
  torch::nn::Linear linear(in, out);
  linear->weight.copy_(Formula({out, in}, seed));
  linear->bias.copy_(Formula({out}, seed + 1));
  return linear;
}

void AddSmallModel(ShardedSequential& model) {
  model.AddLayer("first", [] { return FormulaLinear(kInput, kHidden, 1); });
  model.AddLayer("tanh", [] { return torch::nn::Tanh(); });
  model.AddLayer("second", [] { return FormulaLinear(kHidden, kOutput, 3); });
}

PlainModel::PlainModel()
    : first(FormulaLinear(kInput, kHidden, 1)), second(FormulaLinear(kHidden, kOutput, 3)) {}

at::Tensor PlainModel::Forward(const at::Tensor& input) {
  return second->forward(at::tanh(first->forward(input)));
}

std::vector<at::Tensor> PlainModel::Parameters() const {
  return {first->weight, first->bias, second->weight, second->bias};
}

at::Tensor InputBatch(int64_t index, int64_t rows) {
  return Formula({rows, kInput}, 100 + 7 * index);
}

at::Tensor TargetBatch(int64_t index, int64_t rows) {
  return Formula({rows, kOutput}, 200 + 5 * index);
}

at::Tensor LossOf(const at::Tensor& output, const at::Tensor& target) {
  return at::mse_loss(output, target);
}

void Append(std::vector<double>& values, const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous();
  values.insert(values.end(), flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
}

std::vector<double> Values(const std::vector<at::Tensor>& tensors) {
  std::vector<double> values;
  for (const at::Tensor& tensor : tensors) Append(values, tensor);
  return values;
}

}  // namespace zerod
