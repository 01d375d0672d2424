#include "server/engine/shard_work.h"

#include <algorithm>
#include <span>

#include "proto/contract/error.h"
#include "server/layout/shard_range.h"

namespace zerod {
namespace {

/// No transport time-out of its own: late ranks are the watchdog's business, which aborts the
/// communicator.
constexpr std::chrono::hours kNoTimeout{24};

SegmentTag ReduceTag(uint64_t ticket, int layer, int chunk, int rank) {
  return {ticket, static_cast<uint16_t>(layer), static_cast<uint8_t>(chunk),
          static_cast<uint8_t>(OperationKind::kReduce), static_cast<uint16_t>(rank)};
}

/// The part of each local rank's slot that belongs to the shard of global rank `rank`.
std::vector<const float*> SlotShards(const ReduceWork& work, const ChunkPlan& chunk, int rank) {
  std::vector<const float*> sources;
  for (const std::byte* slot : work.slots) {
    sources.push_back(reinterpret_cast<const float*>(slot + chunk.slot_offset_bytes) +
                      rank * chunk.shard_numel);
  }
  return sources;
}

/// Remote ranks whose segments this lane sums and sends.
std::vector<int> RemoteTargets(const Topology& topology, int local_rank) {
  std::vector<int> ranks;
  for (int node = 0; node < topology.NodeCount(); ++node) {
    if (node == topology.node) continue;
    for (int local = 0; local < topology.Ranks(node); ++local) {
      if (local % topology.LocalRanks() == local_rank) {
        ranks.push_back(topology.FirstRank(node) + local);
      }
    }
  }
  return ranks;
}

/// What this rank's shard is the sum of.
struct ShardSources {
  std::vector<const float*> local;  // this node's ranks
  std::vector<const float*> nodes;  // sums of the nodes, in order; this node's is null
  float* own_sum = nullptr;         // room for a block of it; null if one source is all of it
};

/// Exchanges node sums. The sources are valid until the lane's buffers are taken again.
ShardSources ExchangeNodeSums(const ShardContext& context, const LayerStore& layer,
                              const ReduceWork& work, int chunk) {
  const Topology& topology = context.topology;
  const ChunkPlan& plan = layer.plan().chunks[chunk];
  const int own_rank = topology.FirstRank(topology.node) + context.local_rank;
  const std::vector<int> targets = RemoteTargets(topology, context.local_rank);
  // The slot of a lone rank is the node's sum and goes out from where it lies.
  const bool sums = topology.LocalRanks() > 1;
  const size_t received_count = topology.NodeCount() - 1;
  const std::vector<std::span<float>> buffers =
      context.buffers->Take(received_count + (sums ? targets.size() + 1 : 0), plan.shard_numel);
  auto buffer = buffers.begin();
  std::vector<SendSegment> sends;
  for (int target : targets) {
    const std::vector<const float*> slots = SlotShards(work, plan, target);
    std::span<const float> sum(slots.front(), plan.shard_numel);
    if (sums) {
      context.kernels.SumTo(*buffer, slots);
      sum = *buffer++;
    }
    sends.push_back({topology.NodeOf(target), ReduceTag(work.ticket, layer.index(), chunk, target),
                     std::as_bytes(sum)});
  }
  ShardSources sources{SlotShards(work, plan, own_rank), {}};
  if (sums) sources.own_sum = buffers.back().data();
  std::vector<ReceiveSegment> receives;
  for (int node = 0; node < topology.NodeCount(); ++node) {
    sources.nodes.push_back(node == topology.node ? nullptr : buffer->data());
    if (node == topology.node) continue;
    receives.push_back({node, ReduceTag(work.ticket, layer.index(), chunk, own_rank),
                        std::as_writable_bytes(*buffer++)});
  }
  context.reduce_communicator->Exchange(sends, receives, kNoTimeout);
  return sources;
}

/// Each source's elements from `begin` on; null stays null.
std::vector<const float*> From(std::vector<const float*> sources, size_t begin) {
  for (const float*& source : sources) source += source == nullptr ? 0 : begin;
  return sources;
}

/// Returns the sum of squares of the new accumulator. This node's sum is made block by block: it
/// never leaves the cache.
double AddToAccumulator(const ShardContext& context, std::span<float> accumulator,
                        const ShardSources& shard, bool overwrite) {
  double sum_squares = 0;
  for (size_t begin = 0; begin < accumulator.size(); begin += kBlockNumel) {
    const size_t numel = std::min<size_t>(kBlockNumel, accumulator.size() - begin);
    const std::vector<const float*> local = From(shard.local, begin);
    if (shard.own_sum != nullptr) context.kernels.SumTo({shard.own_sum, numel}, local);
    std::vector<const float*> sources = From(shard.nodes, begin);
    const float* own = shard.own_sum != nullptr ? shard.own_sum : local.front();
    std::ranges::replace(sources, nullptr, own);
    sum_squares += context.kernels.SumInto(accumulator.subspan(begin, numel),
                                           sources.empty() ? local : sources, overwrite);
  }
  return sum_squares;
}

}  // namespace

double ReduceShard(const ShardContext& context, const LayerStore& layer, const ReduceWork& work) {
  const Topology& topology = context.topology;
  const int own_rank = topology.FirstRank(topology.node) + context.local_rank;
  double sum_squares = 0;
  for (size_t i = 0; i < layer.plan().chunks.size(); ++i) {
    const int chunk = static_cast<int>(i);
    const ChunkPlan& plan = layer.plan().chunks[i];
    if (!plan.trainable) continue;
    const std::span<float> accumulator = layer.Accumulator(chunk, context.local_rank);
    const ShardSources sources = topology.NodeCount() == 1
                                     ? ShardSources{SlotShards(work, plan, own_rank), {}}
                                     : ExchangeNodeSums(context, layer, work, chunk);
    sum_squares += AddToAccumulator(context, accumulator, sources, work.overwrite);
  }
  return sum_squares;
}

namespace {

void UpdateBlock(const ShardContext& context, const LayerStore& layer, const UpdateWork& work,
                 int chunk, const TensorPart& block) {
  const StepArguments& step = work.arguments;
  const TensorSpec& spec = layer.plan().spec.tensors[block.tensor];
  const double learning_rate = step.learning_rate * static_cast<double>(spec.lr_scale);
  const double weight_decay = spec.decay ? step.weight_decay : 0.0;
  auto part = [&](auto shard) { return shard.subspan(block.shard_begin_numel, block.numel); };
  const std::span<float> master = part(layer.Master(chunk, context.local_rank));
  const std::span<const float> gradient = part(layer.Accumulator(chunk, context.local_rank));
  std::span<uint16_t> bf16;
  if (spec.dtype == DType::kBFloat16) bf16 = part(layer.Bf16Parameters(chunk, context.local_rank));
  if (step.optimizer == OptimizerKind::kSgd) {
    context.kernels.Sgd({master, gradient, bf16}, {learning_rate, weight_decay, work.factor});
    return;
  }
  AdamWTensors tensors;
  tensors.parameter = master;
  tensors.exp_avg = part(layer.ExpAvg(chunk, context.local_rank));
  tensors.exp_avg_sq = part(layer.ExpAvgSq(chunk, context.local_rank));
  tensors.gradient = gradient;
  tensors.bf16_parameter = bf16;
  AdamWArguments arguments;
  arguments.learning_rate = learning_rate;
  arguments.beta1 = step.beta1;
  arguments.beta2 = step.beta2;
  arguments.eps = step.eps;
  arguments.weight_decay = weight_decay;
  arguments.count = layer.counts[block.tensor];
  arguments.gradient_factor = work.factor;
  context.kernels.AdamW(tensors, arguments);
}

}  // namespace

void UpdateShard(const ShardContext& context, LayerStore& layer, const UpdateWork& work,
                 StepProgress& progress) {
  const int rank = context.topology.FirstRank(context.topology.node) + context.local_rank;
  progress.begun = work.step;
  progress.layer = layer.index();
  for (size_t i = 0; i < layer.plan().chunks.size(); ++i) {
    const int chunk = static_cast<int>(i);
    progress.chunk = chunk;
    for (TensorPart part : PartsOfShard(layer.plan(), chunk, rank)) {
      if (!layer.updating[part.tensor]) continue;
      const int64_t end = part.shard_begin_numel + part.numel;
      for (; part.shard_begin_numel < end; part.shard_begin_numel += kBlockNumel) {
        part.numel = std::min(kBlockNumel, end - part.shard_begin_numel);
        progress.block = part.shard_begin_numel / kBlockNumel;
        UpdateBlock(context, layer, work, chunk, part);
      }
    }
  }
}

}  // namespace zerod
