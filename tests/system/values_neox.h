#pragma once

#include <functional>

#include "worker/neox/layers.h"
#include "worker/sharded/sharded_sequential.h"

namespace zerod {

/// Adds the layers of a GPT-NeoX model, "embed_in", "layers.0", ..., "head", whose tensors have
/// their published names. `fill` gives a layer its values (Initialize or Load).
void AddNeox(ShardedSequential& model, const neox::Config& config,
             const std::function<void(neox::Layer&)>& fill);

}  // namespace zerod
