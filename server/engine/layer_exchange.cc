#include "server/engine/layer_exchange.h"

#include <chrono>
#include <cstring>

#include "proto/contract/error.h"

namespace zerod {
namespace {

constexpr std::chrono::hours kNoTimeout{24};  // the watchdog aborts the communicator

SegmentTag Tag(OperationKind kind, uint64_t ticket, int layer, int chunk, int rank) {
  return {ticket, static_cast<uint16_t>(layer), static_cast<uint8_t>(chunk),
          static_cast<uint8_t>(kind), static_cast<uint16_t>(rank)};
}

}  // namespace

void LayerExchange::Gather(const LayerStore& layer, uint64_t ticket) const {
  layer.AllocateRemote();
  std::vector<SendSegment> sends;
  std::vector<ReceiveSegment> receives;
  const int own = topology_.node;
  for (size_t chunk = 0; chunk < layer.plan().chunks.size(); ++chunk) {
    for (int node = 0; node < topology_.NodeCount(); ++node) {
      if (node == own) continue;
      const std::span<std::byte> outgoing =
          layer.ShardBytes(chunk, topology_.FirstRank(own), topology_.LocalRanks());
      sends.push_back(
          {node,
           Tag(OperationKind::kGather, ticket, layer.index(), chunk, topology_.FirstRank(own)),
           outgoing});
      receives.push_back(
          {node,
           Tag(OperationKind::kGather, ticket, layer.index(), chunk, topology_.FirstRank(node)),
           layer.ShardBytes(chunk, topology_.FirstRank(node), topology_.Ranks(node))});
    }
  }
  if (communicator_ != nullptr) communicator_->Exchange(sends, receives, kNoTimeout);
}

void LayerExchange::Write(const LayerStore& layer, uint64_t ticket, int source_rank,
                          std::span<std::byte> stage) const {
  for (size_t i = 0; i < layer.plan().chunks.size(); ++i) {
    const int chunk = static_cast<int>(i);
    const ChunkPlan& plan = layer.plan().chunks[i];
    std::span<std::byte> full;
    if (!stage.empty()) {
      full = stage.subspan(plan.stage_offset_bytes, plan.padded_numel * sizeof(float));
      ZeroGaps(layer.plan(), chunk, full, sizeof(float));
    }
    WriteChunk(layer, ticket, chunk, topology_.NodeOf(source_rank), full);
  }
}

void LayerExchange::WriteChunk(const LayerStore& layer, uint64_t ticket, int chunk, int source_node,
                               std::span<std::byte> full) const {
  const ChunkPlan& plan = layer.plan().chunks[chunk];
  const size_t shard_numel = plan.shard_numel;
  const bool has_master = plan.trainable || plan.dtype == DType::kFloat32;
  std::vector<SendSegment> sends;
  std::vector<ReceiveSegment> receives;
  std::vector<std::span<const float>> values;  // by local rank
  std::vector<std::vector<float>> spare(topology_.LocalRanks());
  for (int rank = 0; rank < topology_.World(); ++rank) {
    const SegmentTag tag = Tag(OperationKind::kWrite, ticket, layer.index(), chunk, rank);
    const int node = topology_.NodeOf(rank);
    if (topology_.node == source_node) {
      const std::span<std::byte> part =
          full.subspan(rank * shard_numel * sizeof(float), shard_numel * sizeof(float));
      if (node == source_node) {
        values.emplace_back(reinterpret_cast<const float*>(part.data()), shard_numel);
      } else {
        sends.push_back({node, tag, part});
      }
    } else if (node == topology_.node) {
      const size_t local = values.size();
      if (!has_master) spare[local].resize(shard_numel);
      const std::span<float> target =
          has_master ? layer.Master(chunk, static_cast<int>(local)) : std::span(spare[local]);
      receives.push_back({source_node, tag, std::as_writable_bytes(target)});
      values.emplace_back(target);
    }
  }
  if (communicator_ != nullptr) communicator_->Exchange(sends, receives, kNoTimeout);
  for (size_t local = 0; local < values.size(); ++local) {
    layer.SetValues(chunk, static_cast<int>(local), values[local]);
  }
}

void LayerExchange::Read(const LayerStore& layer, uint64_t ticket, Content content,
                         const std::vector<std::span<std::byte>>& stages) const {
  for (size_t i = 0; i < layer.plan().chunks.size(); ++i) {
    const int chunk = static_cast<int>(i);
    if (!layer.Has(content, chunk)) continue;
    const ChunkPlan& plan = layer.plan().chunks[i];
    const int64_t element_bytes =
        content == Content::kParameter ? SizeOf(plan.dtype) : SizeOf(DType::kFloat32);
    const size_t full_bytes = plan.padded_numel * element_bytes;
    auto part = [&](size_t stage) {
      return stages[stage].subspan(plan.stage_offset_bytes, full_bytes);
    };
    ReadChunk(layer, Tag(OperationKind::kRead, ticket, layer.index(), chunk, 0), content,
              stages.empty() ? std::span<std::byte>() : part(0));
    for (size_t stage = 1; stage < stages.size(); ++stage) {
      std::memcpy(part(stage).data(), part(0).data(), full_bytes);
    }
  }
}

void LayerExchange::ReadChunk(const LayerStore& layer, const SegmentTag& tag, Content content,
                              std::span<std::byte> full) const {
  const int first = topology_.FirstRank(topology_.node);
  const ChunkPlan& plan = layer.plan().chunks[tag.chunk];
  const size_t shard_bytes =
      plan.shard_numel * SizeOf(content == Content::kParameter ? plan.dtype : DType::kFloat32);
  // The other nodes send whether this one wants it or not: all into the room of one shard.
  std::vector<std::byte> unwanted;
  if (full.empty() && communicator_ != nullptr) unwanted.resize(shard_bytes);
  std::vector<SendSegment> sends;
  std::vector<ReceiveSegment> receives;
  std::vector<std::vector<float>> spare(topology_.LocalRanks());
  for (int rank = 0; rank < topology_.World(); ++rank) {
    SegmentTag tag_of_rank = tag;
    tag_of_rank.rank = static_cast<uint16_t>(rank);
    const std::span<std::byte> target =
        full.empty() ? std::span(unwanted) : full.subspan(rank * shard_bytes, shard_bytes);
    if (!topology_.IsLocal(rank)) {
      receives.push_back({topology_.NodeOf(rank), tag_of_rank, target});
      continue;
    }
    const std::span<const std::byte> own =
        layer.Values(content, tag.chunk, rank - first, spare[rank - first]);
    if (!full.empty()) std::memcpy(target.data(), own.data(), own.size());
    for (int node = 0; node < topology_.NodeCount(); ++node) {
      if (node != topology_.node) sends.push_back({node, tag_of_rank, own});
    }
  }
  if (communicator_ != nullptr) communicator_->Exchange(sends, receives, kNoTimeout);
}

}  // namespace zerod
