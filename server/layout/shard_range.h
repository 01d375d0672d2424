#pragma once

#include <cstdint>
#include <vector>

#include "proto/contract/plan.h"

namespace zerod {

/// The part of one tensor that lies in one shard; never empty.
struct TensorPart {
  int32_t tensor = 0;              ///< index into LayerPlan::tensors
  int64_t tensor_begin_numel = 0;  ///< first element within the flat tensor
  int64_t shard_begin_numel = 0;   ///< the same element within the shard
  int64_t numel = 0;

  bool operator==(const TensorPart&) const = default;
};

/// What a range of a chunk holds, in ascending order; what is between the parts is padding.
/// `begin_numel` counts from the start of the chunk, shard_begin_numel of the result from there.
std::vector<TensorPart> PartsOfRange(const LayerPlan& plan, int32_t chunk, int64_t begin_numel,
                                     int64_t numel);

/// What shard `dp_index` of a chunk holds.
std::vector<TensorPart> PartsOfShard(const LayerPlan& plan, int32_t chunk, int32_t dp_index);

}  // namespace zerod
