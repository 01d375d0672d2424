#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace zerod {

/// What is known of a backward that threw.
struct BackwardFailure {
  /// The layer whose own computation threw; none if it was something outside of all layers.
  std::optional<size_t> layer;
  /// Layers that got gradients but no OnGradientsComplete.
  std::vector<size_t> incomplete;
};

/// What a backward tells the owner of the layers. Layers and parameters are the indices of
/// BackwardTracker::AddLayer.
///
/// Thread: whatever thread runs the backward; never two calls at once as long as all layers live on
/// one device. An exception thrown from any of these but OnBackwardFailed ends the backward and
/// reaches its caller with its type; OnBackwardFailed follows.
///
/// A backward inside a backward (activation checkpointing) belongs to the outermost one: only the
/// outermost one finishes or fails.
class LayerEvents {
 public:
  virtual ~LayerEvents() = default;

  /// The calls that a backward will run: one entry per call, in the order LibTorch is expected to
  /// begin them (on one device it does). The same graph gives the same list. A backward inside a
  /// backward gives a list of its own, whose calls come before the rest of the outer one's. For
  /// prefetching.
  virtual void OnBackwardPlan(const std::vector<size_t>& layers) = 0;

  /// A call of `layer` is about to read its parameters, until the OnBackwardEnd that pairs with
  /// this. Calls of one layer may overlap: count.
  virtual void OnBackwardBegin(size_t layer) = 0;

  /// This call of `layer` has read its parameters for the last time in this backward. `more_calls`
  /// says whether another call of the layer will begin, or is open, in the same backward.
  virtual void OnBackwardEnd(size_t layer, bool more_calls) = 0;

  /// One contribution to the gradient of one parameter: dense, the shape of the parameter,
  /// detached, valid only during the call. Copy the first since the last OnGradientsComplete, add
  /// the others. The layer may have been released by then.
  virtual void OnGradient(size_t layer, size_t parameter, const at::Tensor& gradient) = 0;

  /// Nothing of this backward will contribute to `layer` any more, as far as its graph says: once
  /// per backward for every layer whose trainable parameters are in the graph, also if none of them
  /// got a gradient. A backward inside a backward may complete a layer that the outer one doesn't
  /// know about, and do so again: the sums belong together.
  virtual void OnGradientsComplete(size_t layer) = 0;

  /// The outermost backward is done. Every begin has had its end, every gradient its completion.
  virtual void OnBackwardFinished() = 0;

  /// The outermost backward threw. Begins without an end are void.
  virtual void OnBackwardFailed(const BackwardFailure& failure) noexcept = 0;
};

}  // namespace zerod
