#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/autograd/backward_tracker.h"
#include "worker/autograd/checkpoint.h"
#include "worker/autograd/parameter_storage.h"

namespace zerod {

/// The smallest owner of sharded layers: full parameters stay in a private copy and come into one
/// of a few slots only while a call of the layer needs them; free slots hold NaN. Gradients of a
/// layer are collected until complete and then added to `reduced`.
class LayerPool : public LayerEvents {
 public:
  using Body = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

  explicit LayerPool(size_t slots = 4) : slots_(slots), tracker_(*this) {}
  ~LayerPool() override;

  /// `values` are the initial parameters; one that needs no gradient is frozen.
  size_t AddLayer(const std::vector<at::Tensor>& values);
  const at::Tensor& parameter(size_t layer, size_t index) const {
    return layers_[layer]->parameters[index];
  }
  size_t layer_count() const { return layers_.size(); }

  /// Runs `body` while `layers` (the caller's own first, then those whose tensors it borrows) are
  /// held, once more in the backward if `checkpointed`.
  std::vector<at::Tensor> Call(const std::vector<size_t>& layers, const Body& body,
                               const std::vector<at::Tensor>& inputs, bool checkpointed = false);
  at::Tensor CallOne(size_t layer, const std::function<at::Tensor(const at::Tensor&)>& body,
                     const at::Tensor& input, bool checkpointed = false);

  /// What was reduced so far; undefined if nothing was.
  at::Tensor reduced(size_t layer, size_t index) const { return layers_[layer]->reduced[index]; }
  /// How often the gradients of the layer were complete.
  size_t completions(size_t layer) const { return layers_[layer]->completions; }
  size_t held_layers() const;
  size_t most_held_layers() const { return most_held_; }
  size_t finished() const { return finished_; }
  size_t failed() const { return failed_; }
  std::optional<size_t> failed_layer() const { return failed_layer_; }  ///< of the last failure
  /// The layers of the calls that backwards ran, in that order.
  const std::vector<size_t>& begun() const { return begun_; }

  /// Called on every gradient before it is taken; may throw.
  std::function<void(size_t layer, size_t parameter)> on_gradient;

  void OnBackwardPlan(const std::vector<size_t>& layers) override;
  void OnBackwardBegin(size_t layer) override;
  void OnBackwardEnd(size_t layer, bool more_calls) override;
  void OnGradient(size_t layer, size_t parameter, const at::Tensor& gradient) override;
  void OnGradientsComplete(size_t layer) override;
  void OnBackwardFinished() override;
  void OnBackwardFailed(const BackwardFailure& failure) noexcept override;

 private:
  struct Slot;
  struct Layer {
    std::unique_ptr<ParameterStorage> storage;
    at::Tensor master;
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> collected;
    std::vector<at::Tensor> reduced;
    size_t holds = 0;
    size_t backward_holds = 0;
    size_t completions = 0;
    std::shared_ptr<Slot> slot;
  };

  void Acquire(size_t layer);
  void Release(size_t layer);
  void DropBackwardHolds();

  size_t slots_;
  size_t most_held_ = 0;
  size_t finished_ = 0;
  size_t failed_ = 0;
  std::optional<size_t> failed_layer_;
  std::deque<size_t> upcoming_;
  std::vector<size_t> begun_;
  std::vector<std::shared_ptr<Slot>> free_slots_;
  std::vector<std::unique_ptr<Layer>> layers_;
  BackwardTracker tracker_;
};

}  // namespace zerod
