#include "server/layout/predicted_bytes.h"

#include <algorithm>

namespace zerod {
namespace {

void AddChunk(const LayerSpec& spec, const ChunkPlan& chunk, PredictedBytes& bytes) {
  bytes.parameters += chunk.shard_numel * SizeOf(chunk.dtype);
  if (!chunk.trainable) return;
  bytes.gradients += chunk.shard_numel * SizeOf(spec.reduce_dtype);
  const int64_t copies = chunk.dtype == spec.master_dtype ? 2 : 3;
  bytes.optimizer_state += copies * chunk.shard_numel * SizeOf(spec.master_dtype);
}

}  // namespace

PredictedBytes PredictBytes(std::span<const LayerPlan> layers, int gradient_slots) {
  PredictedBytes bytes;
  int64_t slot_bytes_max = 0;
  for (const LayerPlan& layer : layers) {
    for (const ChunkPlan& chunk : layer.chunks) AddChunk(layer.spec, chunk, bytes);
    slot_bytes_max = std::max(slot_bytes_max, layer.slot_bytes);
  }
  bytes.slots = gradient_slots * slot_bytes_max;
  return bytes;
}

}  // namespace zerod
