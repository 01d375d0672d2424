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
  std::vector<SendSegment> sends;
  std::vector<ReceiveSegment> receives;
  const int source_node = topology_.NodeOf(source_rank);
  const int own = topology_.node;
  for (size_t chunk = 0; chunk < layer.plan().chunks.size(); ++chunk) {
    const ChunkPlan& plan = layer.plan().chunks[chunk];
    const size_t shard_bytes = plan.shard_numel * SizeOf(plan.dtype);
    if (own != source_node) {
      receives.push_back(
          {source_node,
           Tag(OperationKind::kWrite, ticket, layer.index(), chunk, topology_.FirstRank(own)),
           layer.ShardBytes(chunk, topology_.FirstRank(own), topology_.LocalRanks())});
      continue;
    }
    const std::span<std::byte> full = stage.subspan(plan.stage_offset_bytes, plan.RegionBytes());
    ZeroGaps(layer.plan(), static_cast<int>(chunk), full, SizeOf(plan.dtype));
    for (int node = 0; node < topology_.NodeCount(); ++node) {
      const int first = topology_.FirstRank(node);
      const std::span<std::byte> part =
          full.subspan(first * shard_bytes, topology_.Ranks(node) * shard_bytes);
      if (node == own) {
        std::memcpy(layer.ShardBytes(chunk, first, topology_.Ranks(node)).data(), part.data(),
                    part.size());
      } else {
        sends.push_back(
            {node, Tag(OperationKind::kWrite, ticket, layer.index(), chunk, first), part});
      }
    }
  }
  if (communicator_ != nullptr) communicator_->Exchange(sends, receives, kNoTimeout);
}

void LayerExchange::Read(const LayerStore& layer, uint64_t ticket, Content content,
                         const std::vector<std::span<std::byte>>& stages) const {
  const int own = topology_.node;
  for (size_t chunk = 0; chunk < layer.plan().chunks.size(); ++chunk) {
    const ChunkPlan& plan = layer.plan().chunks[chunk];
    if (content != Content::kParameter && !plan.trainable) continue;
    std::vector<float> full(plan.padded_numel);
    for (int local = 0; local < topology_.LocalRanks(); ++local) {
      const bool empty = content == Content::kGradient && !layer.accumulated;
      if (empty) continue;
      const std::span<float> shard = layer.Values(content, static_cast<int>(chunk), local);
      std::memcpy(full.data() + (topology_.FirstRank(own) + local) * plan.shard_numel, shard.data(),
                  shard.size_bytes());
    }
    std::vector<SendSegment> sends;
    std::vector<ReceiveSegment> receives;
    auto part = [&](int node) {
      return std::as_writable_bytes(std::span(full).subspan(
          topology_.FirstRank(node) * plan.shard_numel, topology_.Ranks(node) * plan.shard_numel));
    };
    for (int node = 0; node < topology_.NodeCount(); ++node) {
      if (node == own) continue;
      auto tag = [&](int from) {
        return Tag(OperationKind::kRead, ticket, layer.index(), chunk, topology_.FirstRank(from));
      };
      sends.push_back({node, tag(own), part(own)});
      receives.push_back({node, tag(node), part(node)});
    }
    if (communicator_ != nullptr) communicator_->Exchange(sends, receives, kNoTimeout);
    for (const std::span<std::byte>& stage : stages) {
      std::memcpy(stage.data() + plan.stage_offset_bytes, full.data(), full.size() * sizeof(float));
    }
  }
}

}  // namespace zerod
