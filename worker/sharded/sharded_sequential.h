#pragma once

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "worker/sharded/sharded_model.h"

namespace zerod {

/// Wraps a module (shared_ptr or LibTorch's ModuleHolder) whose forward takes and returns one
/// tensor.
template <typename Module>
LayerModule MakeLayerModule(Module module) {
  std::shared_ptr<torch::nn::Module> shared;
  if constexpr (requires { module.ptr(); }) {
    shared = module.ptr();
  } else {
    shared = module;
  }
  return {shared,
          [module](const std::vector<at::Tensor>& inputs) mutable {
            return std::vector<at::Tensor>{module->forward(inputs.at(0))};
          },
          {}};
}

/// One layer of a model, called like a function anywhere in a graph.
class ShardedLayer {
 public:
  template <typename Factory>
  ShardedLayer(ShardedModel& model, const std::string& name, Factory factory,
               const LayerOptions& options = {})
      : model_(&model), index_(model.AddLayer(name, Adapt(std::move(factory)), options)) {}

  at::Tensor operator()(const at::Tensor& input) const { return model_->Call(index_, {input})[0]; }
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs) const {
    return model_->Call(index_, inputs);
  }
  size_t index() const { return index_; }

  /// Makes a factory of LayerModule from one of modules.
  template <typename Factory>
  static std::function<LayerModule()> Adapt(Factory factory) {
    if constexpr (std::is_same_v<std::invoke_result_t<Factory>, LayerModule>) {
      return factory;
    } else {
      return [factory = std::move(factory)] { return MakeLayerModule(factory()); };
    }
  }

 private:
  ShardedModel* model_;
  size_t index_;
};

/// Layers in sequence, each fed with the output of the one before.
///
///     auto session = zerod::Session::Connect(zerod::SessionOptions::FromEnvironment());
///     zerod::ShardedSequential model(*session, {.prefetch_depth = 1});
///     model.AddLayer("hidden", [] { return torch::nn::Linear(64, 256); });
///     model.AddLayer("activation", [] { return torch::nn::GELU(); });
///     model.AddLayer("output", [] { return torch::nn::Linear(256, 8); });
///     loss_of(model.Forward(input)).backward();
///     model.Step({.learning_rate = 1e-3, .max_grad_norm = 1.0});
///
/// Threads and errors: those of ShardedModel.
class ShardedSequential : public ShardedModel {
 public:
  using ShardedModel::ShardedModel;

  /// `factory` returns a module (shared_ptr or ModuleHolder) with forward(Tensor) -> Tensor, or a
  /// LayerModule. It is called once, and the values are given up before the next layer is made.
  template <typename Factory>
  void AddLayer(const std::string& name, Factory factory, const LayerOptions& options = {}) {
    ShardedModel::AddLayer(name, ShardedLayer::Adapt(std::move(factory)), options);
  }

  at::Tensor Forward(at::Tensor input) {
    std::vector<size_t> layers(layer_count());
    std::iota(layers.begin(), layers.end(), size_t{0});
    BeginPass(layers);
    for (size_t layer : layers) input = Call(layer, {input})[0];
    return input;
  }
};

}  // namespace zerod
