// Reduces and updates on real layer stores; between nodes over real Gloo.

#include "server/engine/shard_work.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "server/layout/planner.h"
#include "server/optimizer/factory.h"
#include "tests/server/collective/nodes.h"

namespace zerod {
namespace {

LayerPlan Plan(int world) {
  LayerSpec spec;
  spec.name = "block";
  spec.tensors.push_back({.name = "weight", .shape = {200'001}, .lr_scale = 2.0f});
  spec.tensors.push_back({.name = "bias", .shape = {9}});
  return PlanLayer(spec, {.dp = world});
}

/// Small integers, so that sums are exact in any order.
float Gradient(int rank, int64_t element) { return static_cast<float>(element % 13 + rank); }

/// One node's store and the gradient slots of its ranks, padding zero.
class NodeShards {
 public:
  NodeShards(int node, const std::vector<int>& ranks_per_node)
      : topology({.node = node, .ranks_per_node = ranks_per_node}),
        store(0, Plan(topology.World()),
              {.job_id = "job",
               .topology = topology,
               .mesh = {.dp = topology.World()},
               .poison = true}) {
    const LayerPlan& plan = store.plan();
    for (int local = 0; local < topology.LocalRanks(); ++local) {
      slots_.emplace_back(plan.chunks[0].padded_numel);
      buffers_.emplace_back(true);
      for (const TensorPlan& tensor : plan.tensors) {
        for (int64_t i = tensor.offset_numel; i < tensor.offset_numel + tensor.numel; ++i) {
          slots_.back()[i] = Gradient(first_rank() + local, i);
        }
      }
      work.slots.push_back(reinterpret_cast<const std::byte*>(slots_.back().data()));
    }
    work.ticket = 5;
  }

  int first_rank() const { return topology.FirstRank(topology.node); }
  ShardContext ContextOf(int local, Communicator* communicator) {
    return {topology, local, SelectKernels(DetectInstructionSet()), communicator, &buffers_[local]};
  }

  /// Reduces on one thread per lane; returns the sum of the lanes' sums of squares.
  double Reduce(Communicator* communicator) {
    std::vector<double> sums(topology.LocalRanks());
    std::vector<std::thread> lanes;
    lanes.reserve(topology.LocalRanks());
    for (int local = 0; local < topology.LocalRanks(); ++local) {
      lanes.emplace_back(
          [&, local] { sums[local] = ReduceShard(ContextOf(local, communicator), store, work); });
    }
    for (std::thread& lane : lanes) lane.join();
    double total = 0;
    for (double sum : sums) total += sum;
    return total;
  }

  /// What rank `rank`'s accumulator holds after `reduces` equal reduces.
  std::vector<float> Expected(int rank, int reduces) const {
    const LayerPlan& plan = store.plan();
    std::vector<float> full(plan.chunks[0].padded_numel);
    for (const TensorPlan& tensor : plan.tensors) {
      for (int64_t i = tensor.offset_numel; i < tensor.offset_numel + tensor.numel; ++i) {
        for (int r = 0; r < topology.World(); ++r) full[i] += reduces * Gradient(r, i);
      }
    }
    const int64_t numel = plan.chunks[0].shard_numel;
    return {full.begin() + rank * numel, full.begin() + (rank + 1) * numel};
  }

  double SumOfSquares(int reduces) const {
    double total = 0;
    for (int local = 0; local < topology.LocalRanks(); ++local) {
      for (float value : Expected(first_rank() + local, reduces)) total += double{value} * value;
    }
    return total;
  }

  void ExpectAccumulators(int reduces) const {
    for (int local = 0; local < topology.LocalRanks(); ++local) {
      EXPECT_TRUE(
          std::ranges::equal(store.Accumulator(0, local), Expected(first_rank() + local, reduces)));
    }
  }

  Topology topology;
  LayerStore store;
  ReduceWork work;

 private:
  std::vector<std::vector<float>> slots_;
  std::vector<ReduceBuffers> buffers_;  // by local rank, poisoned
};

TEST(ShardWorkTest, OnOneNodeAccumulatorsHoldTheSumsOfAllRanks) {
  NodeShards node(0, {3});
  EXPECT_DOUBLE_EQ(node.Reduce(nullptr), node.SumOfSquares(1));
  node.ExpectAccumulators(1);
  node.work.overwrite = false;
  EXPECT_DOUBLE_EQ(node.Reduce(nullptr), node.SumOfSquares(2));
  node.ExpectAccumulators(2);
}

class NodesTest : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(NodesTest, AcrossNodesAccumulatorsHoldTheSumsOfAllRanks) {
  const int count = static_cast<int>(GetParam().size());
  testing::RunNodes(count, [&](int index, Communicator& communicator) {
    NodeShards node(index, GetParam());
    EXPECT_DOUBLE_EQ(node.Reduce(&communicator), node.SumOfSquares(1));
    node.ExpectAccumulators(1);
    // Each segment of a remote rank leaves this node once, already summed over its ranks.
    const int remote = node.topology.World() - node.topology.LocalRanks();
    EXPECT_EQ(communicator.counters().sent_bytes,
              remote * node.store.plan().chunks[0].shard_numel * sizeof(float));
  });
}
INSTANTIATE_TEST_SUITE_P(ShardWork, NodesTest,
                         ::testing::Values(std::vector<int>{1, 1}, std::vector<int>{2, 2},
                                           std::vector<int>{2, 1}, std::vector<int>{1, 3},
                                           std::vector<int>{1, 1, 1}));

TEST(ShardWorkTest, AnUpdateChangesOnlyTheTensorsThatTakePart) {
  NodeShards node(0, {2});
  node.Reduce(nullptr);
  node.store.updating = {false, true};
  UpdateWork work;
  work.arguments.optimizer = OptimizerKind::kSgd;
  work.arguments.learning_rate = 0.5;
  work.factor = 0.25;
  work.step = 3;
  std::vector<StepProgress> progress(2);
  for (int local : {0, 1}) {
    UpdateShard(node.ContextOf(local, nullptr), node.store, work, progress[local]);
    EXPECT_EQ(progress[local].begun, 3u);
  }
  const auto* values = reinterpret_cast<const float*>(node.store.ChunkBytes(0).data());
  const TensorPlan& bias = node.store.plan().tensors[1];
  for (int64_t i = 0; i < node.store.plan().chunks[0].padded_numel; ++i) {
    const bool part = i >= bias.offset_numel && i < bias.offset_numel + bias.numel;
    const float sum = Gradient(0, i) + Gradient(1, i);
    ASSERT_EQ(values[i], part ? -0.5f * (0.25f * sum) : 0.0f) << i;
  }
}

TEST(ShardWorkTest, TheLearningRateMultiplierScalesTheStep) {
  NodeShards node(0, {1});
  node.Reduce(nullptr);
  node.store.updating = {true, true};
  UpdateWork work;
  work.arguments.optimizer = OptimizerKind::kSgd;
  work.arguments.learning_rate = 0.5;
  StepProgress progress;
  UpdateShard(node.ContextOf(0, nullptr), node.store, work, progress);
  const std::span<const float> values = node.store.Master(0, 0);
  EXPECT_EQ(values[7], -2 * 0.5f * Gradient(0, 7));  // of weight, multiplier 2
  const int64_t bias = node.store.plan().tensors[1].offset_numel;
  EXPECT_EQ(values[bias], -0.5f * Gradient(0, bias));
}

}  // namespace
}  // namespace zerod
