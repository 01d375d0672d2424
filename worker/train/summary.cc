#include "worker/train/summary.h"

#include <algorithm>
#include <cmath>

#include "worker/train/figures.h"

namespace zerod::train {
namespace {

constexpr int64_t kGradientBytes = 4;
constexpr int64_t kMomentBytes = 8;  // two of AdamW
constexpr int64_t kMasterBytes = 4;

std::string CountOf(int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string Compact(int64_t count) { return CompactText(static_cast<double>(count)); }

void AddChunk(const ChunkPlan& chunk, OptimizerKind optimizer, ModelSize& size) {
  size.parameter_bytes += chunk.shard_numel * SizeOf(chunk.dtype);
  if (!chunk.trainable) return;
  size.gradient_bytes += chunk.shard_numel * kGradientBytes;
  if (optimizer == OptimizerKind::kAdamW) size.optimizer_bytes += chunk.shard_numel * kMomentBytes;
  if (chunk.dtype != DType::kFloat32) size.optimizer_bytes += chunk.shard_numel * kMasterBytes;
}

/// The layer that computes, the last one, which stays from forward to backward, and those that are
/// asked for ahead.
int64_t WindowBytes(const std::vector<LayerPlan>& plans, const MeasureOptions& options) {
  if (options.node_count == 1) return 0;
  int64_t largest_bytes = 0;
  int64_t all_bytes = 0;
  for (const LayerPlan& plan : plans) {
    largest_bytes = std::max(largest_bytes, plan.gathered_bytes);
    all_bytes += plan.gathered_bytes;
  }
  const auto in_use = std::min<int64_t>(options.prefetch_depth, 1000) + 2;
  const int64_t bytes = std::min(all_bytes, in_use * largest_bytes);
  return options.window_limit_bytes > 0 ? std::min(bytes, options.window_limit_bytes) : bytes;
}

}  // namespace

ModelSize MeasureModel(const std::vector<LayerPlan>& plans, const MeasureOptions& options) {
  ModelSize size;
  size.layers = static_cast<int64_t>(plans.size());
  for (const LayerPlan& plan : plans) {
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      ++size.tensors;
      size.parameters += plan.tensors[i].numel;
      if (!plan.spec.tensors[i].trainable) continue;
      ++size.trainable_tensors;
      size.trainable += plan.tensors[i].numel;
    }
    for (const ChunkPlan& chunk : plan.chunks) AddChunk(chunk, options.optimizer, size);
    size.slot_bytes = std::max(size.slot_bytes, plan.slot_bytes * options.gradient_slots);
  }
  size.window_bytes = WindowBytes(plans, options);
  return size;
}

std::string SummaryText(const ModelSize& size, const Mesh& mesh, int node_count) {
  std::string text = "model: " + Compact(size.parameters) + " parameters in " +
                     CountOf(size.layers, "layer") + ", sharded over " + CountOf(mesh.dp, "rank") +
                     " on " + CountOf(node_count, "node") + "\ntrained: ";
  if (size.trainable == size.parameters) {
    text += "all of them";
  } else {
    text += Compact(size.trainable) + " parameters in " + std::to_string(size.trainable_tensors) +
            " of " + CountOf(size.tensors, "tensor") +
            "; frozen: " + Compact(size.parameters - size.trainable) +
            ", which cost only their own bytes";
  }
  text += "\neach rank holds: parameters " + BytesText(size.parameter_bytes) + ", gradients " +
          BytesText(size.gradient_bytes) + ", optimizer " + BytesText(size.optimizer_bytes) +
          ", gradient slots " + BytesText(size.slot_bytes);
  if (node_count > 1) text += ", gather window " + BytesText(size.window_bytes);
  return text + "; predicted peak " + BytesText(size.peak_bytes());
}

std::string LossText(double loss) {
  return FixedText(loss, 3) + " nats per token, perplexity " + FixedText(std::exp(loss), 2);
}

std::string ResultText(const RunResult& result) {
  const int64_t steps = result.last_step - result.first_step;
  std::string text = "trained " + CountOf(steps, "step") + " on " + Compact(result.tokens) +
                     " tokens in " + DurationText(result.seconds);
  if (steps > 0) {
    text += ", " + CompactText(static_cast<double>(result.tokens) / result.seconds) +
            " tokens/s; last loss " + FixedText(result.loss, 3);
  }
  if (!result.eval_loss) return text;
  text += "\nheld-out loss " + LossText(*result.eval_loss);
  if (result.best_eval_loss != result.eval_loss) {
    text += "; best " + FixedText(*result.best_eval_loss, 3) + " after step " +
            std::to_string(result.best_step);
  }
  return text;
}

}  // namespace zerod::train
