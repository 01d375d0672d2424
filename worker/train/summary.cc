#include "worker/train/summary.h"

#include <algorithm>

#include "worker/train/figures.h"

namespace zerod::train {
namespace {

constexpr int64_t kGradientBytes = 4;
constexpr int64_t kMomentBytes = 8;  // two of AdamW

std::string CountOf(int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

ModelSize MeasureModel(const std::vector<LayerPlan>& plans, OptimizerKind optimizer,
                       int gradient_slots) {
  ModelSize size;
  size.layers = static_cast<int64_t>(plans.size());
  for (const LayerPlan& plan : plans) {
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      size.parameters += plan.tensors[i].numel;
      if (plan.spec.tensors[i].trainable) size.trainable += plan.tensors[i].numel;
    }
    for (const ChunkPlan& chunk : plan.chunks) {
      size.parameter_bytes += chunk.shard_numel * SizeOf(chunk.dtype);
      if (!chunk.trainable) continue;
      size.gradient_bytes += chunk.shard_numel * kGradientBytes;
      if (optimizer == OptimizerKind::kAdamW) size.moment_bytes += chunk.shard_numel * kMomentBytes;
    }
    size.slot_bytes = std::max(size.slot_bytes, plan.slot_bytes * gradient_slots);
  }
  return size;
}

std::string SummaryText(const ModelSize& size, const Mesh& mesh, int node_count) {
  std::string text = "model: " + CompactText(static_cast<double>(size.parameters)) +
                     " parameters in " + CountOf(size.layers, "layer");
  if (size.trainable != size.parameters) {
    text += ", " + CompactText(static_cast<double>(size.trainable)) + " of them trained";
  }
  text += ", sharded over " + CountOf(mesh.dp, "rank") + " on " + CountOf(node_count, "node");
  return text + "\neach rank holds: parameters " + BytesText(size.parameter_bytes) +
         ", gradients " + BytesText(size.gradient_bytes) + ", moments " +
         BytesText(size.moment_bytes) + ", gradient slots " + BytesText(size.slot_bytes);
}

}  // namespace zerod::train
