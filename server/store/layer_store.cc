#include "server/store/layer_store.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "proto/contract/error.h"
#include "server/store/element_cast.h"
#include "server/store/state_header.h"

namespace zerod {
namespace {

constexpr int kAccumulator = 0;
constexpr int kExpAvg = 1;
constexpr int kExpAvgSq = 2;
constexpr int kMaster = 3;  // of a 16-bit chunk

int StateParts(const ChunkPlan& chunk) { return chunk.dtype == DType::kFloat32 ? 3 : 4; }

SharedMemory MakeState(StateKind kind, const std::string& label, int64_t size_bytes,
                       const Placement& placement) {
  SharedMemory memory =
      SharedMemory::Create(label, kRegionHeaderBytes + size_bytes, placement.huge_pages);
  StateHeader& header = *new (memory.data()) StateHeader();
  header.kind = kind;
  header.dp = placement.mesh.dp;
  header.tp = placement.mesh.tp;
  SetJobId(header, placement.job_id);
  return memory;
}

}  // namespace

LayerStore::LayerStore(int index, LayerPlan plan, const Placement& placement)
    : active(plan.spec.tensors.size()),
      updating(plan.spec.tensors.size()),
      sum_squares(placement.topology.LocalRanks()),
      index_(index),
      plan_(std::move(plan)),
      topology_(placement.topology) {
  const uint64_t hash = HashOf(plan_.spec);
  const size_t tensors = plan_.spec.tensors.size();
  counts_memory_ = MakeState(StateKind::kCounts, Concat("zerod:", name(), ":counts"),
                             static_cast<int64_t>(tensors * sizeof(int64_t)), placement);
  HeaderOf(counts_memory_).layer_hash = hash;
  HeaderOf(counts_memory_).layer = index_;
  counts = {reinterpret_cast<int64_t*>(counts_memory_.data() + kRegionHeaderBytes), tensors};
  const int first_rank = topology_.FirstRank(topology_.node);
  for (size_t chunk = 0; chunk < plan_.chunks.size(); ++chunk) {
    const ChunkPlan& chunk_plan = plan_.chunks[chunk];
    const std::string label = Concat("zerod:", name(), ":", chunk);
    auto describe = [&](SharedMemory& memory, int rank) {
      StateHeader& header = HeaderOf(memory);
      header.layer_hash = hash;
      header.layer = index_;
      header.chunk = static_cast<int>(chunk);
      header.rank = rank;
    };
    regions_.push_back(MakeState(StateKind::kRegion, label, chunk_plan.RegionBytes(), placement));
    describe(regions_.back(), -1);
    states_.emplace_back();
    if (!chunk_plan.trainable) continue;
    has_trainable_ = true;
    const int64_t part_bytes = chunk_plan.shard_numel * static_cast<int64_t>(sizeof(float));
    for (int local = 0; local < topology_.LocalRanks(); ++local) {
      states_.back().push_back(MakeState(StateKind::kShard, label + ":state",
                                         StateParts(chunk_plan) * part_bytes, placement));
      describe(states_.back().back(), first_rank + local);
      if (placement.poison) {
        std::ranges::fill(Accumulator(static_cast<int>(chunk), local),
                          std::numeric_limits<float>::quiet_NaN());
      }
    }
  }
}

std::span<std::byte> LayerStore::ChunkBytes(int chunk) const {
  return {regions_[chunk].data() + kRegionHeaderBytes,
          static_cast<size_t>(plan_.chunks[chunk].RegionBytes())};
}

std::span<std::byte> LayerStore::ShardBytes(int chunk, int first_rank, int ranks) const {
  const ChunkPlan& chunk_plan = plan_.chunks[chunk];
  const size_t shard_bytes = chunk_plan.shard_numel * SizeOf(chunk_plan.dtype);
  return ChunkBytes(chunk).subspan(first_rank * shard_bytes, ranks * shard_bytes);
}

std::span<std::byte> LayerStore::Shard(int chunk, int local_rank) const {
  return ShardBytes(chunk, topology_.FirstRank(topology_.node) + local_rank, 1);
}

std::span<float> LayerStore::Master(int chunk, int local_rank) const {
  if (plan_.chunks[chunk].dtype != DType::kFloat32) return State(chunk, local_rank, kMaster);
  const std::span<std::byte> bytes = Shard(chunk, local_rank);
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::span<uint16_t> LayerStore::Bf16Parameters(int chunk, int local_rank) const {
  ZEROD_CHECK(plan_.chunks[chunk].dtype == DType::kBFloat16, "layer ", name());
  const std::span<std::byte> bytes = Shard(chunk, local_rank);
  return {reinterpret_cast<uint16_t*>(bytes.data()), bytes.size() / sizeof(uint16_t)};
}

std::span<float> LayerStore::State(int chunk, int local_rank, int part) const {
  const size_t shard_numel = plan_.chunks[chunk].shard_numel;
  std::byte* data = states_[chunk][local_rank].data() + kRegionHeaderBytes;
  return {reinterpret_cast<float*>(data) + part * shard_numel, shard_numel};
}

std::span<float> LayerStore::Accumulator(int chunk, int local_rank) const {
  return State(chunk, local_rank, kAccumulator);
}
std::span<float> LayerStore::ExpAvg(int chunk, int local_rank) const {
  return State(chunk, local_rank, kExpAvg);
}
std::span<float> LayerStore::ExpAvgSq(int chunk, int local_rank) const {
  return State(chunk, local_rank, kExpAvgSq);
}

bool LayerStore::Has(Content content, int chunk) const {
  return content == Content::kParameter || content == Content::kMaster ||
         plan_.chunks[chunk].trainable;
}

std::span<const std::byte> LayerStore::Values(Content content, int chunk, int local_rank,
                                              std::vector<float>& spare) const {
  const ChunkPlan& plan = plan_.chunks[chunk];
  switch (content) {
    case Content::kParameter:
      return Shard(chunk, local_rank);
    case Content::kGradient:
      if (accumulated) return std::as_bytes(Accumulator(chunk, local_rank));
      spare.assign(plan.shard_numel, 0.0f);
      return std::as_bytes(std::span(spare));
    case Content::kExpAvg:
      return std::as_bytes(ExpAvg(chunk, local_rank));
    case Content::kExpAvgSq:
      return std::as_bytes(ExpAvgSq(chunk, local_rank));
    case Content::kMaster:
      if (plan.dtype == DType::kFloat32 || plan.trainable) {
        return std::as_bytes(Master(chunk, local_rank));
      }
      spare.resize(plan.shard_numel);
      WidenTo(spare, plan.dtype, Shard(chunk, local_rank));
      return std::as_bytes(std::span(spare));
  }
  ZEROD_CHECK(false, "content ", static_cast<int>(content));
  return {};
}

void LayerStore::SetValues(int chunk, int local_rank, std::span<const float> values) const {
  const ChunkPlan& plan = plan_.chunks[chunk];
  const bool narrow = plan.dtype == DType::kBFloat16;
  if (!narrow || plan.trainable) {
    const std::span<float> master = Master(chunk, local_rank);
    if (values.data() != master.data()) {
      std::memcpy(master.data(), values.data(), master.size_bytes());
    }
  }
  if (narrow) RoundToBf16(Bf16Parameters(chunk, local_rank), values);
}

std::vector<std::pair<int64_t, int64_t>> LayerStore::RemoteRanges(int chunk) const {
  const ChunkPlan& chunk_plan = plan_.chunks[chunk];
  const int64_t shard_bytes = chunk_plan.shard_numel * SizeOf(chunk_plan.dtype);
  const int first = topology_.FirstRank(topology_.node);
  const int after = first + topology_.LocalRanks();
  std::vector<std::pair<int64_t, int64_t>> ranges;
  if (first > 0) ranges.emplace_back(kRegionHeaderBytes, first * shard_bytes);
  if (after < topology_.World()) {
    ranges.emplace_back(kRegionHeaderBytes + after * shard_bytes,
                        (topology_.World() - after) * shard_bytes);
  }
  return ranges;
}

void LayerStore::AllocateRemote() const {
  for (size_t chunk = 0; chunk < regions_.size(); ++chunk) {
    for (const auto& [offset_bytes, size_bytes] : RemoteRanges(static_cast<int>(chunk))) {
      regions_[chunk].Allocate(offset_bytes, size_bytes);
    }
  }
}

void LayerStore::PunchRemote() {
  for (size_t chunk = 0; chunk < regions_.size(); ++chunk) {
    for (const auto& [offset_bytes, size_bytes] : RemoteRanges(static_cast<int>(chunk))) {
      regions_[chunk].Punch(offset_bytes, size_bytes);
    }
  }
}

int64_t LayerStore::ParameterBytes() const {
  int64_t bytes = 0;
  for (const ChunkPlan& chunk : plan_.chunks) {
    bytes += chunk.shard_numel * SizeOf(chunk.dtype) * topology_.LocalRanks();
  }
  return bytes;
}

int64_t LayerStore::StateBytes() const {
  int64_t bytes = 0;
  for (const auto& states : states_) {
    for (const SharedMemory& state : states) bytes += state.size_bytes() - kRegionHeaderBytes;
  }
  return bytes;
}

int64_t LayerStore::StateResidentBytes() const {
  int64_t bytes = 0;
  for (const auto& states : states_) {
    for (const SharedMemory& state : states) bytes += state.ResidentBytes() - kRegionHeaderBytes;
  }
  return bytes;
}

void LayerStore::WriteVersion(uint64_t new_version, uint64_t epoch) {
  version = new_version;
  for (size_t chunk = 0; chunk < regions_.size(); ++chunk) {
    HeaderOf(regions_[chunk]).version = new_version;
    HeaderOf(regions_[chunk]).epoch = epoch;
    for (SharedMemory& state : states_[chunk]) {
      HeaderOf(state).version = new_version;
      HeaderOf(state).epoch = epoch;
    }
  }
}

void ZeroGaps(const LayerPlan& plan, int chunk, std::span<std::byte> bytes, int64_t element_bytes) {
  int64_t done_numel = 0;
  auto zero_until = [&](int64_t end_numel) {
    std::memset(bytes.data() + done_numel * element_bytes, 0,
                (end_numel - done_numel) * element_bytes);
  };
  // Tensors of a chunk lie in registration order, so their offsets ascend.
  for (const TensorPlan& tensor : plan.tensors) {
    if (tensor.chunk != chunk) continue;
    zero_until(tensor.offset_numel);
    done_numel = tensor.offset_numel + tensor.numel;
  }
  zero_until(plan.chunks[chunk].padded_numel);
}

}  // namespace zerod
