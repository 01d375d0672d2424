#pragma once

#include <functional>
#include <memory>

#include "worker/neox/layers.h"
#include "worker/sharded/sharded_sequential.h"

namespace zerod {

/// Adds the layers of a GPT-NeoX model, "embed_in", "layers.0", ..., "head", whose tensors have
/// their published names. `fill` gives a layer its values (Initialize or Load). The layers share
/// `forward`, if any.
void AddNeox(ShardedSequential& model, const neox::Config& config,
             const std::function<void(neox::Layer&)>& fill,
             std::shared_ptr<const neox::ForwardContext> forward = nullptr);

}  // namespace zerod
