#include "server/layout/planner.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "proto/contract/error.h"

namespace zerod {
namespace {

[[noreturn]] void Refuse(const LayerSpec& layer, const TensorSpec& tensor,
                         const std::string& reason) {
  throw Error(ErrorCode::kInvalidArgument,
              Concat("layer '", layer.name, "' tensor '", tensor.name, "': ", reason));
}

int64_t Numel(const LayerSpec& layer, const TensorSpec& tensor) {
  if (tensor.shape.size() > kRankMax) {
    Refuse(layer, tensor,
           Concat(tensor.shape.size(), " dimensions; at most ", kRankMax, " are supported"));
  }
  int64_t numel = 1;
  bool empty = false;
  for (const int64_t size : tensor.shape) {
    if (size < 0) Refuse(layer, tensor, Concat("size ", size, " in its shape is negative"));
    if (size == 0) {
      empty = true;
      continue;
    }
    // A huge size is refused beside a zero too: what it means depends on the order of factors.
    if (size > kNumelMax / numel) {
      Refuse(layer, tensor,
             Concat("more than ", kNumelMax, " elements; split it into several tensors"));
    }
    numel *= size;
  }
  return empty ? 0 : numel;
}

void CheckTensor(const LayerSpec& layer, const TensorSpec& tensor) {
  SizeOf(tensor.dtype);  // throws for an unknown one
  if (tensor.name.empty()) Refuse(layer, tensor, "it has no name");
  if (!std::isfinite(tensor.lr_scale) || tensor.lr_scale < 0) {
    Refuse(layer, tensor,
           Concat("learning-rate multiplier ", tensor.lr_scale, " isn't a number >= 0"));
  }
}

void CheckLayer(const LayerSpec& layer, const Mesh& mesh) {
  if (mesh.dp < 1 || mesh.tp < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("mesh of dp ", mesh.dp, " x tp ", mesh.tp, "; both must be at least 1"));
  }
  if (layer.name.empty()) throw Error(ErrorCode::kInvalidArgument, "a layer has no name");
  if (layer.tensors.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("layer '", layer.name, "' has no tensors; register only layers with some"));
  }
  SizeOf(layer.reduce_dtype);
  SizeOf(layer.master_dtype);
  std::set<std::string> names;
  for (const TensorSpec& tensor : layer.tensors) {
    CheckTensor(layer, tensor);
    if (!names.insert(tensor.name).second) {
      Refuse(layer, tensor, "registered twice; a tied tensor is registered once");
    }
  }
}

/// Bytes of the narrowest element in which a chunk's values are stored.
int64_t NarrowestBytes(const LayerSpec& layer, const ChunkPlan& chunk) {
  const int64_t own_bytes = SizeOf(chunk.dtype);
  if (!chunk.trainable) return own_bytes;
  return std::min({own_bytes, SizeOf(layer.reduce_dtype), SizeOf(layer.master_dtype)});
}

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

int32_t FindOrAddChunk(std::vector<ChunkPlan>& chunks, const TensorSpec& tensor) {
  const auto found = std::find_if(chunks.begin(), chunks.end(), [&](const ChunkPlan& chunk) {
    return chunk.trainable == tensor.trainable && chunk.dtype == tensor.dtype;
  });
  const auto index = static_cast<int32_t>(found - chunks.begin());
  if (found == chunks.end()) {
    chunks.push_back({.dtype = tensor.dtype, .trainable = tensor.trainable});
  }
  return index;
}

/// Sets `tensors` and leaves each chunk's used length in its padded_numel.
void PlaceTensors(LayerPlan& plan) {
  for (const TensorSpec& tensor : plan.spec.tensors) {
    const int64_t numel = Numel(plan.spec, tensor);
    const int32_t index = FindOrAddChunk(plan.chunks, tensor);
    ChunkPlan& chunk = plan.chunks[index];
    const int64_t alignment_numel = kTensorAlignmentBytes / NarrowestBytes(plan.spec, chunk);
    const int64_t offset_numel = RoundUp(chunk.padded_numel, alignment_numel);
    if (offset_numel > kNumelMax - numel) {
      Refuse(plan.spec, tensor,
             Concat("with it, tensors of one dtype have more than ", kNumelMax,
                    " elements; split the layer"));
    }
    plan.tensors.push_back({.chunk = index, .offset_numel = offset_numel, .numel = numel});
    chunk.padded_numel = offset_numel + numel;
  }
}

void PadChunks(LayerPlan& plan, int32_t dp) {
  for (ChunkPlan& chunk : plan.chunks) {
    const int64_t page_numel = kPageBytes / NarrowestBytes(plan.spec, chunk);
    const int64_t share_numel = RoundUp(chunk.padded_numel, dp) / dp;
    chunk.shard_numel = RoundUp(std::max<int64_t>(share_numel, 1), page_numel);
    chunk.padded_numel = chunk.shard_numel * dp;

    plan.gathered_bytes += chunk.RegionBytes();
    chunk.stage_offset_bytes = plan.stage_bytes;
    const int64_t stage_element_bytes = std::max(SizeOf(chunk.dtype), SizeOf(DType::kFloat32));
    plan.stage_bytes += chunk.padded_numel * stage_element_bytes;
    if (chunk.trainable) {
      chunk.slot_offset_bytes = plan.slot_bytes;
      plan.slot_bytes += chunk.padded_numel * SizeOf(plan.spec.reduce_dtype);
    }
  }
}

}  // namespace

LayerPlan PlanLayer(const LayerSpec& spec, const Mesh& mesh) {
  CheckLayer(spec, mesh);
  LayerPlan plan;
  plan.spec = spec;
  PlaceTensors(plan);
  PadChunks(plan, mesh.dp);
  return plan;
}

}  // namespace zerod
