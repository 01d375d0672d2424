#include "tests/system/case_layers.h"

#include <stdexcept>

#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sum.h>
#include <c10/core/GradMode.h>

namespace zerod {

LayerModule ModuleOf(const CaseLayer& layer) {
  const auto module = std::make_shared<torch::nn::Module>();
  const Tensors parameters = layer.values();
  for (size_t i = 0; i < parameters.size(); ++i) {
    module->register_parameter(Concat("p", i), parameters[i], !layer.frozen);
  }
  return {module,
          [parameters, function = layer.function](const Tensors& inputs) {
            return function(parameters, inputs);
          },
          {}};
}

void AddLayers(ShardedModel& model, const std::vector<CaseLayer>& layers) {
  for (const CaseLayer& layer : layers) {
    model.AddLayer(
        layer.name, [&] { return ModuleOf(layer); }, layer.options);
  }
}

Apply ShardedApply(ShardedModel& model) {
  return [&model](size_t index, const Tensors& inputs) { return model.Call(index, inputs); };
}

PlainLayers::PlainLayers(std::vector<CaseLayer> layers) : layers_(std::move(layers)) {
  for (const CaseLayer& layer : layers_) {
    parameters_.push_back(layer.values());
    for (at::Tensor& parameter : parameters_.back()) parameter.set_requires_grad(!layer.frozen);
  }
}

Apply PlainLayers::Applier() {
  return [this](size_t index, const Tensors& inputs) {
    return layers_[index].function(parameters_[index], inputs);
  };
}

Tensors PlainLayers::Trainable() const {
  Tensors result;
  for (const Tensors& parameters : parameters_) {
    for (const at::Tensor& parameter : parameters) {
      if (parameter.requires_grad()) result.push_back(parameter);
    }
  }
  return result;
}

void PlainLayers::SgdStep(double rate, double divisor) {
  const c10::NoGradGuard no_grad;
  for (at::Tensor& parameter : Trainable()) {
    if (!parameter.grad().defined()) continue;
    parameter.sub_(parameter.grad(), rate / divisor);
    parameter.mutable_grad() = at::Tensor();
  }
}

StepOptions PlainSgd(double rate, double divisor) {
  StepOptions options;
  options.optimizer = OptimizerKind::kSgd;
  options.learning_rate = rate;
  options.gradient_divisor = divisor;
  return options;
}

at::Tensor Filled(at::IntArrayRef sizes, double value) {
  return at::full(sizes, value, at::kFloat);
}

Tensors MatVec(const Tensors& parameters, const Tensors& inputs) {
  return {at::matmul(parameters[0], inputs[0])};
}

LayerFunction AddWeighted(double c) {
  return [c](const Tensors& parameters, const Tensors& inputs) -> Tensors {
    return {inputs[0] + at::sum(parameters[0] * c)};
  };
}

int64_t NumberIn(const std::string& json, const std::string& key, const std::string& after) {
  const size_t begin = after.empty() ? 0 : json.find(after);
  const std::string field = Concat("\"", key, "\": ");
  const size_t at = begin == std::string::npos ? begin : json.find(field, begin);
  if (at == std::string::npos) throw std::runtime_error(Concat("no ", key, " in ", json));
  return std::stoll(json.substr(at + field.size()));
}

}  // namespace zerod
