#include "server/store/layer_store.h"

#include <cmath>
#include <cstring>

#include <gmock/gmock.h>

#include "server/layout/planner.h"
#include "server/store/state_header.h"

namespace zerod {
namespace {

using ::testing::Each;

/// Node 1 of three nodes with 1, 2 and 1 ranks; two tensors with gaps between and behind them.
class LayerStoreTest : public ::testing::Test {
 protected:
  static LayerPlan Plan() {
    LayerSpec spec;
    spec.name = "block";
    spec.tensors.push_back({.name = "weight", .shape = {3001}});
    spec.tensors.push_back({.name = "bias", .shape = {7}});
    spec.tensors.push_back({.name = "frozen", .shape = {5}, .trainable = false});
    return PlanLayer(spec, {.dp = 4});
  }
  static Placement MakePlacement(bool poison = false) {
    return {.job_id = "job",
            .topology = {.node = 1, .ranks_per_node = {1, 2, 1}},
            .mesh = {.dp = 4},
            .poison = poison};
  }
  LayerStore store_{3, Plan(), MakePlacement()};
};

TEST_F(LayerStoreTest, EverythingIsZeroAtFirst) {
  for (int chunk : {0, 1}) EXPECT_THAT(store_.ChunkBytes(chunk), Each(std::byte{0}));
  for (int local : {0, 1}) {
    EXPECT_THAT(store_.Accumulator(0, local), Each(0.0f));
    EXPECT_THAT(store_.ExpAvg(0, local), Each(0.0f));
    EXPECT_THAT(store_.ExpAvgSq(0, local), Each(0.0f));
  }
}

TEST_F(LayerStoreTest, ShardsOfLocalRanksLieInPlaceInTheRegion) {
  const int64_t shard_numel = store_.plan().chunks[0].shard_numel;
  store_.Master(0, 0)[0] = 1.5f;
  store_.Master(0, 1)[shard_numel - 1] = 2.5f;
  const auto* region = reinterpret_cast<const float*>(store_.ChunkBytes(0).data());
  EXPECT_EQ(region[1 * shard_numel], 1.5f);
  EXPECT_EQ(region[3 * shard_numel - 1], 2.5f);
}

TEST_F(LayerStoreTest, PunchingLeavesOnlyTheLocalShards) {
  std::ranges::fill(store_.ChunkBytes(0), std::byte{1});
  store_.PunchRemote();
  EXPECT_THAT(store_.ShardBytes(0, 0, 1), Each(std::byte{0}));
  EXPECT_THAT(store_.ShardBytes(0, 1, 2), Each(std::byte{1}));
  EXPECT_THAT(store_.ShardBytes(0, 3, 1), Each(std::byte{0}));
}

TEST_F(LayerStoreTest, RoomForRemoteShardsIsResidentUntilItIsPunched) {
  store_.PunchRemote();
  const int64_t before_bytes = store_.Region(0).ResidentBytes();
  store_.AllocateRemote();
  const auto remote_bytes =
      static_cast<int64_t>(store_.ShardBytes(0, 0, 1).size() + store_.ShardBytes(0, 3, 1).size());
  EXPECT_EQ(store_.Region(0).ResidentBytes(), before_bytes + remote_bytes);
  store_.PunchRemote();
  EXPECT_EQ(store_.Region(0).ResidentBytes(), before_bytes);
}

TEST_F(LayerStoreTest, HeadersSayWhatTheMemoryIs) {
  store_.WriteVersion(9, 4);
  EXPECT_EQ(store_.version, 9u);
  const StateHeader& header = HeaderOf(store_.Region(1));
  EXPECT_EQ(header.magic, StateHeader::kMagic);
  EXPECT_EQ(header.kind, StateKind::kRegion);
  EXPECT_STREQ(header.job_id, "job");
  EXPECT_EQ(header.layer, 3);
  EXPECT_EQ(header.chunk, 1);
  EXPECT_EQ(header.dp, 4);
  EXPECT_EQ(header.version, 9u);
  EXPECT_EQ(header.epoch, 4u);
  EXPECT_EQ(header.layer_hash, HashOf(store_.plan().spec));
}

TEST_F(LayerStoreTest, AFrozenChunkCostsNoState) {
  const int64_t shard_bytes = store_.plan().chunks[0].shard_numel * 4;
  const int64_t frozen_bytes = store_.plan().chunks[1].shard_numel * 4;
  EXPECT_EQ(store_.ParameterBytes(), 2 * (shard_bytes + frozen_bytes));
  EXPECT_EQ(store_.StateBytes(), 2 * 3 * shard_bytes);
}

TEST_F(LayerStoreTest, PoisonFillsAccumulatorsOnly) {
  const LayerStore poisoned(0, Plan(), MakePlacement(true));
  for (float value : poisoned.Accumulator(0, 1)) EXPECT_TRUE(std::isnan(value));
  EXPECT_THAT(poisoned.ExpAvg(0, 1), Each(0.0f));
}

TEST_F(LayerStoreTest, GapsBetweenTensorsBecomeZero) {
  const LayerPlan& plan = store_.plan();
  std::vector<float> values(plan.chunks[0].padded_numel, 1.0f);
  ZeroGaps(plan, 0, std::as_writable_bytes(std::span(values)), sizeof(float));
  for (int64_t i = 0; i < plan.chunks[0].padded_numel; ++i) {
    const int64_t bias = plan.tensors[1].offset_numel;
    const bool tensor = i < 3001 || (i >= bias && i < bias + 7);
    ASSERT_EQ(values[i], tensor ? 1.0f : 0.0f) << i;
  }
}

}  // namespace
}  // namespace zerod
