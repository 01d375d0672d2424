#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "proto/contract/operation.h"
#include "server/collective/communicator.h"
#include "server/engine/reduce_buffers.h"
#include "server/optimizer/kernels.h"
#include "server/store/job.h"
#include "server/store/layer_store.h"

namespace zerod {

/// What a lane needs to work on its rank's shards of a layer. All references outlive the call.
struct ShardContext {
  const Topology& topology;
  int local_rank = 0;
  const OptimizerKernels& kernels;
  Communicator* reduce_communicator = nullptr;  ///< null on a single node
  ReduceBuffers* buffers = nullptr;             ///< the lane's; null on a single node
};

/// One reduce-scatter as its lanes see it.
struct ReduceWork {
  uint64_t ticket = 0;
  std::vector<const std::byte*> slots;  ///< of the local ranks, in rank order
  bool overwrite = true;                ///< first reduce of the step: accumulators aren't read
};

/// Sums this rank's shard of every trainable chunk over all ranks into its accumulator: ranks
/// within a node, then nodes, then the accumulator, always in this order. Also sums and sends the
/// shards of the remote ranks that fall to this lane (remote local index modulo the local ranks).
/// Returns the sum of squares of the accumulators, all chunks. Runs on the lane's thread; throws
/// Error from the communicator.
double ReduceShard(const ShardContext& context, const LayerStore& layer, const ReduceWork& work);

/// One decided step as its lanes see it.
struct UpdateWork {
  StepArguments arguments;
  double factor = 1;
  uint64_t step = 0;  ///< number of steps taken after it
};

/// Updates the parts of this rank's shards that belong to tensors with `updating` set; their counts
/// already include this update. Padding and other tensors are left alone. `progress` is written as
/// it goes.
void UpdateShard(const ShardContext& context, LayerStore& layer, const UpdateWork& work,
                 StepProgress& progress);

/// Elements of a shard per optimizer call: the grain of progress records.
inline constexpr int64_t kBlockNumel = 64 * 1024;

}  // namespace zerod
