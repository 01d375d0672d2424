#pragma once

#include <cstddef>
#include <memory>

#include <ATen/core/Tensor.h>

#include "worker/autograd/layer_events.h"

namespace zerod {

class BackwardState;

/// Turns what LibTorch's autograd does into LayerEvents: which calls of a layer begin and end in a
/// backward, and when the gradients of a layer are complete.
///
/// It keeps `.grad` of every trainable parameter undefined: what autograd accumulated there is
/// handed to OnGradient and dropped. It works for tied, repeated, nested, branched, checkpointed
/// and partly unused layers, for frozen parameters, for several forwards before their backwards and
/// for backward() and grad() with inputs (what grad() returns is not handed over).
///
/// Not supported: differentiating the gradients again (create_graph), and two threads that run
/// backwards of layers of one tracker at once.
class BackwardTracker {
 public:
  /// `events` outlives the tracker.
  explicit BackwardTracker(LayerEvents& events);
  /// Graphs may outlive the tracker; their backwards then report nothing.
  ~BackwardTracker();
  BackwardTracker(const BackwardTracker&) = delete;
  BackwardTracker& operator=(const BackwardTracker&) = delete;

  /// Adds a layer with its own parameters, all of them leaves; those that need no gradient are
  /// never reported. A tensor belongs to one layer; to tie it, let the other layer read it inside a
  /// call of the owner (LayerCall). Returns the index of the layer: 0, 1, 2, …
  size_t AddLayer(at::TensorList parameters);

 private:
  friend class LayerCall;
  friend class CallRecord;
  std::shared_ptr<BackwardState> state_;
};

}  // namespace zerod
