#pragma once

#include <cstdint>

#include "proto/contract/plan.h"

namespace zerod {

/// A shard's bytes are a multiple of this in every dtype it is stored in.
inline constexpr int64_t kPageBytes = 4096;
/// A tensor's offset in its chunk is a multiple of this in every dtype it is stored in.
inline constexpr int64_t kTensorAlignmentBytes = 64;

inline constexpr int kRankMax = 8;                            ///< dimensions of a tensor
inline constexpr int64_t kNumelMax = (int64_t{1} << 40) - 1;  ///< elements of a tensor or a chunk

/// Lays a layer out. Tensors of equal trainability and dtype share a chunk; chunks come in the
/// order of their first tensor, tensors within a chunk in registration order. Every chunk is padded
/// to dp shards of whole pages, at least one each, so no region, segment or slot part is ever empty
/// or shares a page with another rank's. Trainable chunks get a part of the gradient slot, one
/// behind the other; tp doesn't matter, because tensors arrive partitioned.
///
/// Pure: equal arguments give equal plans on every node. Throws Error (kInvalidArgument) for a
/// layer without tensors, a missing or repeated name, a negative or too large shape, an unknown
/// dtype, a learning-rate multiplier that isn't a number >= 0, or a mesh without ranks.
LayerPlan PlanLayer(const LayerSpec& spec, const Mesh& mesh);

}  // namespace zerod
