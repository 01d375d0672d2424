#include "tests/worker/autograd/layer_pool.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "proto/contract/error.h"
#include "worker/autograd/layer_call.h"

namespace zerod {
namespace {

constexpr size_t kSlotNumel = 4096;
constexpr int64_t kAlignmentNumel = 16;  // 64 bytes of float

int64_t AlignedNumel(const at::Tensor& tensor) {
  return (tensor.numel() + kAlignmentNumel - 1) / kAlignmentNumel * kAlignmentNumel;
}

}  // namespace

struct LayerPool::Slot {
  Slot() { Poison(); }
  void Poison() { std::fill_n(values, kSlotNumel, std::numeric_limits<float>::quiet_NaN()); }

  alignas(64) float values[kSlotNumel];
};

LayerPool::~LayerPool() = default;

size_t LayerPool::AddLayer(const std::vector<at::Tensor>& values) {
  auto layer = std::make_unique<Layer>();
  int64_t numel = 0;
  for (const at::Tensor& value : values) numel += AlignedNumel(value);
  layer->storage = std::make_unique<ParameterStorage>(at::kFloat, numel,
                                                      "layer " + std::to_string(layers_.size()));
  layer->master = at::zeros({numel});
  int64_t offset = 0;
  for (const at::Tensor& value : values) {
    layer->master.narrow(0, offset, value.numel()).copy_(value.detach().flatten());
    layer->parameters.push_back(
        layer->storage->MakeParameter(offset, value.sizes(), value.requires_grad()));
    offset += AlignedNumel(value);
  }
  layer->collected.resize(values.size());
  layer->reduced.resize(values.size());
  tracker_.AddLayer(layer->parameters);
  layers_.push_back(std::move(layer));
  if (free_slots_.empty() && layers_.size() == 1) {
    for (size_t i = 0; i < slots_; ++i) free_slots_.push_back(std::make_shared<Slot>());
  }
  return layers_.size() - 1;
}

std::vector<at::Tensor> LayerPool::Call(const std::vector<size_t>& layers, const Body& body,
                                        const std::vector<at::Tensor>& inputs, bool checkpointed) {
  std::vector<LayerCall> calls;
  std::vector<at::Tensor> parameters;
  for (size_t layer : layers) {
    Acquire(layer);
    calls.emplace_back(tracker_, layer);
    for (const at::Tensor& parameter : layers_[layer]->parameters) parameters.push_back(parameter);
  }
  std::vector<at::Tensor> outputs =
      checkpointed ? Checkpoint(tracker_, body, inputs, parameters) : body(inputs);
  for (LayerCall& call : calls) call.Attach(outputs);
  for (size_t layer : layers) Release(layer);
  return outputs;
}

at::Tensor LayerPool::CallOne(size_t layer,
                              const std::function<at::Tensor(const at::Tensor&)>& body,
                              const at::Tensor& input, bool checkpointed) {
  return Call(
      {layer},
      [body](const std::vector<at::Tensor>& inputs) {
        return std::vector<at::Tensor>{body(inputs[0])};
      },
      {input}, checkpointed)[0];
}

size_t LayerPool::held_layers() const {
  return std::count_if(layers_.begin(), layers_.end(),
                       [](const auto& layer) { return layer->holds > 0; });
}

void LayerPool::Acquire(size_t index) {
  Layer& layer = *layers_[index];
  if (layer.holds++ > 0) return;
  ZEROD_CHECK(!free_slots_.empty(), "no slot is free for layer ", index);
  layer.slot = std::move(free_slots_.back());
  free_slots_.pop_back();
  std::memcpy(layer.slot->values, layer.master.data_ptr(), layer.master.nbytes());
  layer.storage->Bind(layer.slot->values);
  most_held_ = std::max(most_held_, held_layers());
}

void LayerPool::Release(size_t index) {
  Layer& layer = *layers_[index];
  ZEROD_CHECK(layer.holds > 0, "layer ", index, " is released too often");
  if (--layer.holds > 0) return;
  layer.storage->Unbind();
  layer.slot->Poison();
  free_slots_.push_back(std::move(layer.slot));
}

void LayerPool::OnBackwardPlan(const std::vector<size_t>& layers) {
  upcoming_.insert(upcoming_.begin(), layers.begin(), layers.end());
}

void LayerPool::OnBackwardBegin(size_t layer) {
  EXPECT_FALSE(upcoming_.empty());
  EXPECT_EQ(upcoming_.front(), layer);
  upcoming_.pop_front();
  begun_.push_back(layer);
  ++layers_[layer]->backward_holds;
  Acquire(layer);
}

void LayerPool::OnBackwardEnd(size_t layer, bool more_calls) {
  ZEROD_CHECK(more_calls || layers_[layer]->backward_holds == 1, "an open call wasn't counted");
  --layers_[layer]->backward_holds;
  Release(layer);
}

void LayerPool::OnGradient(size_t index, size_t parameter, const at::Tensor& gradient) {
  if (on_gradient) on_gradient(index, parameter);
  Layer& layer = *layers_[index];
  EXPECT_EQ(gradient.sizes(), layer.parameters[parameter].sizes());
  EXPECT_FALSE(layer.parameters[parameter].grad().defined());
  at::Tensor& collected = layer.collected[parameter];
  if (collected.defined()) {
    collected.add_(gradient);
  } else {
    collected = gradient.clone();
  }
}

void LayerPool::OnGradientsComplete(size_t index) {
  Layer& layer = *layers_[index];
  ++layer.completions;
  for (size_t i = 0; i < layer.collected.size(); ++i) {
    at::Tensor collected = std::exchange(layer.collected[i], {});
    if (!collected.defined()) continue;
    if (layer.reduced[i].defined()) {
      layer.reduced[i].add_(collected);
    } else {
      layer.reduced[i] = collected;
    }
  }
}

void LayerPool::DropBackwardHolds() {
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (; layers_[i]->backward_holds > 0; --layers_[i]->backward_holds) Release(i);
  }
}

void LayerPool::OnBackwardFinished() {
  ++finished_;
  EXPECT_TRUE(upcoming_.empty());
  for (const auto& layer : layers_) {
    EXPECT_EQ(layer->backward_holds, 0);
    for (const at::Tensor& collected : layer->collected) EXPECT_FALSE(collected.defined());
  }
}

void LayerPool::OnBackwardFailed(const BackwardFailure& failure) noexcept {
  ++failed_;
  failed_layer_ = failure.layer;
  upcoming_.clear();
  DropBackwardHolds();
  for (size_t layer : failure.incomplete) {
    for (at::Tensor& collected : layers_[layer]->collected) collected.reset();
  }
}

}  // namespace zerod
