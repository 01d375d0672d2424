#pragma once

#include <cstdint>
#include <memory>

#include "proto/contract/plan.h"
#include "worker/neox/checkpoint.h"
#include "worker/neox/config.h"
#include "worker/neox/forward_context.h"
#include "worker/sharded/sharded_sequential.h"

namespace zerod::train {

struct BuildOptions {
  uint64_t seed = 0;              ///< of initial values
  bool checkpoint = false;        ///< recompute the blocks' activations in the backward
  DType dtype = DType::kFloat32;  ///< of the parameters
  /// Says what each forward is for; shared by the layers. Null: every forward evaluates.
  std::shared_ptr<const neox::ForwardContext> forward = nullptr;
};

/// Adds the layers of a GPT-NeoX model: "embed_in", "layers.0", ..., "head". Tensors get their
/// published names. In a new job the daemons import the values from `weights`; without them (null)
/// dp index 0 draws them from the seed, one layer at a time. Nobody reads a whole model.
void BuildModel(const neox::Config& config, const neox::Checkpoint* weights,
                const BuildOptions& options, ShardedSequential& model);

}  // namespace zerod::train
