#pragma once

#include <cstddef>
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "worker/autograd/backward_tracker.h"

namespace zerod {

/// One forward call of a layer: finds the autograd nodes that the call made, so that a backward
/// through any of them is reported as OnBackwardBegin and OnBackwardEnd of the layer.
///
///     LayerCall call(tracker, layer);
///     outputs = forward(inputs);
///     call.Attach(outputs);
///
/// Both on the thread that runs `forward`. Calls nest: the inner call's nodes belong to both. With
/// gradients disabled there are no nodes and nothing is attached. The graph owns what Attach adds;
/// dropping the outputs without a backward leaves nothing behind.
///
/// Only nodes that can be reached from `outputs` are found: a tensor that left the layer by another
/// way must be among them if a backward through it is to be reported.
class LayerCall {
 public:
  LayerCall(BackwardTracker& tracker, size_t layer);

  /// Returns whether a backward can run through the call (some output needs a gradient and depends
  /// on a node of this call).
  bool Attach(at::TensorList outputs);

 private:
  BackwardTracker& tracker_;
  size_t layer_;
  uint64_t first_sequence_;
};

}  // namespace zerod
