#pragma once

#include <cstdint>

#include "worker/neox/checkpoint.h"
#include "worker/neox/config.h"
#include "worker/sharded/sharded_sequential.h"

namespace zerod::train {

struct BuildOptions {
  uint64_t seed = 0;        ///< of initial values
  bool checkpoint = false;  ///< recompute the blocks' activations in the backward
};

/// Adds the layers of a GPT-NeoX model: "embed_in", "layers.0", ..., "head". Tensors get their
/// published names. In a new job dp index 0 provides the values, from `weights` if there are any,
/// else drawn from the seed; other ranks build only shapes. `weights` may be null.
void BuildModel(const neox::Config& config, const neox::Checkpoint* weights,
                const BuildOptions& options, ShardedSequential& model);

}  // namespace zerod::train
