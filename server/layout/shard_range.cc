#include "server/layout/shard_range.h"

#include <algorithm>

#include "proto/contract/error.h"

namespace zerod {

std::vector<TensorPart> PartsOfRange(const LayerPlan& plan, int32_t chunk, int64_t begin_numel,
                                     int64_t numel) {
  ZEROD_CHECK(chunk >= 0 && chunk < std::ssize(plan.chunks), "chunk ", chunk, " of ",
              plan.chunks.size());
  const int64_t end_numel = begin_numel + numel;
  ZEROD_CHECK(begin_numel >= 0 && numel >= 0 && end_numel <= plan.chunks[chunk].padded_numel,
              "elements ", begin_numel, " to ", end_numel, " of a chunk of ",
              plan.chunks[chunk].padded_numel);
  std::vector<TensorPart> parts;
  for (int32_t i = 0; i < std::ssize(plan.tensors); ++i) {
    const TensorPlan& tensor = plan.tensors[i];
    if (tensor.chunk != chunk) continue;
    const int64_t first = std::max(tensor.offset_numel, begin_numel);
    const int64_t last = std::min(tensor.offset_numel + tensor.numel, end_numel);
    if (first >= last) continue;
    parts.push_back({.tensor = i,
                     .tensor_begin_numel = first - tensor.offset_numel,
                     .shard_begin_numel = first - begin_numel,
                     .numel = last - first});
  }
  return parts;
}

std::vector<TensorPart> PartsOfShard(const LayerPlan& plan, int32_t chunk, int32_t dp_index) {
  ZEROD_CHECK(chunk >= 0 && chunk < std::ssize(plan.chunks), "chunk ", chunk, " of ",
              plan.chunks.size());
  const int64_t shard_numel = plan.chunks[chunk].shard_numel;
  return PartsOfRange(plan, chunk, dp_index * shard_numel, shard_numel);
}

}  // namespace zerod
