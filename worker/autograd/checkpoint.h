#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/autograd/backward_tracker.h"

namespace zerod {

/// A computation on tensors. Run twice by Checkpoint, it must do the same both times.
using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// Runs `function(inputs)` without keeping its intermediate results; the backward runs it again and
/// differentiates it. Dropout and other random operations repeat their draws, and the generator
/// goes on afterwards as if the second run hadn't happened.
///
/// `parameters` are the leaves that `function` reads outside of any LayerCall of its own: those of
/// the layer that is checkpointed. Parameters of layers that it calls (LayerCall with `tracker`)
/// are found. If one of them or an input needs a gradient, so do the outputs. Other tensors that
/// need gradients must come in by `inputs`.
///
/// The outputs depend on one autograd node, which both runs `function` again and differentiates it:
/// a LayerCall around Checkpoint therefore gives one begin and one end for all of it. The gradients
/// of a layer are complete only when those from outside are, too: once per backward.
///
/// A backward after one of the tensors was changed in place (or its version was bumped) throws, as
/// without a checkpoint.
std::vector<at::Tensor> Checkpoint(const BackwardTracker& tracker, TensorFunction function,
                                   std::vector<at::Tensor> inputs, at::TensorList parameters);

}  // namespace zerod
