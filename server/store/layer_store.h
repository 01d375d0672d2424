#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/contract/operation.h"
#include "proto/contract/plan.h"
#include "proto/contract/shared_memory.h"
#include "server/store/topology.h"

namespace zerod {

/// Where and for whom a layer is stored.
struct Placement {
  std::string job_id;
  Topology topology;
  Mesh mesh;
  bool huge_pages = true;
  bool poison = false;  ///< fill accumulators with NaN: nothing may read them before a reduce
};

/// This node's part of one layer: regions with its ranks' shards in place, accumulators, moments
/// and the float32 masters of trainable bfloat16 chunks.
///
/// Threads: the memory is written by the lane of the shard's rank; the plain fields belong to the
/// engine and are guarded by its lock.
class LayerStore {
 public:
  LayerStore(int index, LayerPlan plan, const Placement& placement);

  int index() const { return index_; }
  const LayerPlan& plan() const { return plan_; }
  const std::string& name() const { return plan_.spec.name; }
  bool HasTrainable() const { return has_trainable_; }

  /// The node's whole padded chunk, behind its header page.
  const SharedMemory& Region(int chunk) const { return regions_[chunk]; }
  std::span<std::byte> ChunkBytes(int chunk) const;
  /// Shards [first_rank, first_rank + ranks) of a chunk, in place.
  std::span<std::byte> ShardBytes(int chunk, int first_rank, int ranks) const;

  /// fp32 views of one local rank's shard of a trainable chunk. The master is the parameter itself
  /// in a float32 chunk, which may be frozen then.
  std::span<float> Master(int chunk, int local_rank) const;
  std::span<float> Accumulator(int chunk, int local_rank) const;
  std::span<float> ExpAvg(int chunk, int local_rank) const;
  std::span<float> ExpAvgSq(int chunk, int local_rank) const;
  /// One local rank's shard of a bfloat16 chunk.
  std::span<uint16_t> Bf16Parameters(int chunk, int local_rank) const;

  /// Whether there is `content` of a chunk: gradients, moments only of trainable ones.
  bool Has(Content content, int chunk) const;
  /// One local rank's shard of what there is, in the chunk's dtype for kParameter, else float32.
  /// Values that aren't stored like that (masters of a frozen bfloat16 chunk) are put into `spare`.
  std::span<const std::byte> Values(Content content, int chunk, int local_rank,
                                    std::vector<float>& spare) const;
  /// Makes parameters, and masters where there are any, from float32 values of a whole shard, which
  /// may be the masters themselves.
  void SetValues(int chunk, int local_rank, std::span<const float> values) const;

  /// Makes room for other nodes' shards before they are received: cheaper than page by page. Throws
  /// Error (kResourceExhausted).
  void AllocateRemote() const;

  /// Gives the pages of other nodes' shards back; they read as zero until received again.
  void PunchRemote();

  int64_t ParameterBytes() const;      ///< of the local shards
  int64_t StateBytes() const;          ///< accumulators, moments and masters of the local shards
  int64_t StateResidentBytes() const;  ///< of these, what the system holds in memory now
  void WriteVersion(uint64_t version, uint64_t epoch);

  // Guarded by the engine's lock.
  uint64_t version = 0;             ///< steps that are in the bytes
  bool accumulated = false;         ///< accumulators hold gradients of the running step
  std::vector<bool> active;         ///< per tensor: some local rank gave a gradient in this step
  std::vector<bool> updating;       ///< per tensor: takes part in the update that runs now
  std::span<int64_t> counts;        ///< per tensor: Adam updates so far; in durable memory
  std::vector<double> sum_squares;  ///< per local rank: of its accumulators, all chunks
  int lanes_left = 0;               ///< lanes that haven't finished the running update
  uint64_t gathers = 0;             ///< statistics
  uint64_t reduces = 0;

 private:
  std::span<float> State(int chunk, int local_rank, int part) const;
  std::span<std::byte> Shard(int chunk, int local_rank) const;
  /// Other nodes' shards in a region: offsets and sizes.
  std::vector<std::pair<int64_t, int64_t>> RemoteRanges(int chunk) const;

  const int index_;
  const LayerPlan plan_;
  const Topology topology_;
  bool has_trainable_ = false;
  SharedMemory counts_memory_;
  std::vector<SharedMemory> regions_;              // per chunk
  std::vector<std::vector<SharedMemory>> states_;  // per chunk and local rank: header, 3 parts or 4
};

/// Sets every element of a chunk's bytes that belongs to no tensor to zero. `element_bytes` may
/// differ from the chunk's dtype (moments of a 16-bit chunk are float32).
void ZeroGaps(const LayerPlan& plan, int chunk, std::span<std::byte> bytes, int64_t element_bytes);

}  // namespace zerod
