#include "server/layout/shard_range.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/layout/planner.h"
#include "server/layout/predicted_bytes.h"

namespace zerod {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

LayerSpec MixedLayer() {
  return {.name = "mixed",
          .tensors = {{.name = "a", .shape = {1000}},
                      {.name = "frozen", .shape = {70}, .trainable = false},
                      {.name = "b", .shape = {3, 500}},
                      {.name = "none", .shape = {0}},
                      {.name = "scalar", .shape = {}}}};
}

TEST(ShardRangeTest, AShardHoldsTheCutTensorsOfItsChunk) {
  // a at 0 to 1000, b at 1008 to 2508, scalar at 2512; three shards of 1024.
  const LayerPlan plan = PlanLayer(MixedLayer(), {.dp = 3});
  ASSERT_EQ(plan.chunks[0].shard_numel, 1024);
  EXPECT_THAT(PartsOfShard(plan, 0, 0),
              ElementsAre(TensorPart{.tensor = 0, .shard_begin_numel = 0, .numel = 1000},
                          TensorPart{.tensor = 2, .shard_begin_numel = 1008, .numel = 16}));
  EXPECT_THAT(PartsOfShard(plan, 0, 1),
              ElementsAre(TensorPart{.tensor = 2, .tensor_begin_numel = 16, .numel = 1024}));
  EXPECT_THAT(PartsOfShard(plan, 0, 2),
              ElementsAre(TensorPart{.tensor = 2, .tensor_begin_numel = 1040, .numel = 460},
                          TensorPart{.tensor = 4, .shard_begin_numel = 2512 - 2048, .numel = 1}));
}

TEST(ShardRangeTest, AShardOfPaddingHoldsNothing) {
  const LayerPlan plan =
      PlanLayer({.name = "small", .tensors = {{.name = "w", .shape = {5}}}}, {.dp = 4});
  EXPECT_THAT(PartsOfShard(plan, 0, 0), ElementsAre(TensorPart{.tensor = 0, .numel = 5}));
  for (const int dp_index : {1, 2, 3}) EXPECT_THAT(PartsOfShard(plan, 0, dp_index), IsEmpty());
}

TEST(ShardRangeTest, ShardsCoverEveryElementOnceForEveryWorldSize) {
  for (const int dp : {1, 2, 3, 4, 8}) {
    const LayerPlan plan = PlanLayer(MixedLayer(), {.dp = dp});
    std::vector<int64_t> next_numel(plan.tensors.size(), 0);
    for (int chunk = 0; chunk < std::ssize(plan.chunks); ++chunk) {
      for (int dp_index = 0; dp_index < dp; ++dp_index) {
        for (const TensorPart& part : PartsOfShard(plan, chunk, dp_index)) {
          EXPECT_EQ(part.tensor_begin_numel, next_numel[part.tensor]);
          EXPECT_EQ(dp_index * plan.chunks[chunk].shard_numel + part.shard_begin_numel,
                    plan.tensors[part.tensor].offset_numel + part.tensor_begin_numel);
          next_numel[part.tensor] += part.numel;
        }
      }
    }
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      EXPECT_EQ(next_numel[i], plan.tensors[i].numel) << plan.spec.tensors[i].name << ", dp " << dp;
    }
  }
}

TEST(ShardRangeTest, ARangeCutsOutPartOfATensor) {
  const LayerPlan plan = PlanLayer(MixedLayer(), {.dp = 1});
  EXPECT_THAT(PartsOfRange(plan, 0, 990, 20),
              ElementsAre(TensorPart{.tensor = 0, .tensor_begin_numel = 990, .numel = 10},
                          TensorPart{.tensor = 2, .shard_begin_numel = 18, .numel = 2}));
  EXPECT_THAT(PartsOfRange(plan, 0, 1000, 8), IsEmpty());
}

TEST(ShardRangeDeathTest, ARangeBeyondTheChunkIsABug) {
  const LayerPlan plan = PlanLayer(MixedLayer(), {.dp = 1});
  EXPECT_DEATH(PartsOfRange(plan, 0, 0, plan.chunks[0].padded_numel + 1), "of a chunk of");
  EXPECT_DEATH(PartsOfShard(plan, 2, 0), "chunk 2 of 2");
}

TEST(PredictedBytesTest, Float32TakesSixteenBytesPerTrainableElementAndFourPerFrozen) {
  const std::vector<LayerPlan> layers = {PlanLayer(MixedLayer(), {.dp = 3})};
  const int64_t trainable_numel = layers[0].chunks[0].shard_numel;
  const int64_t frozen_numel = layers[0].chunks[1].shard_numel;
  EXPECT_EQ(PredictBytes(layers, 2),
            (PredictedBytes{.parameters = 4 * (trainable_numel + frozen_numel),
                            .gradients = 4 * trainable_numel,
                            .optimizer_state = 8 * trainable_numel,
                            .slots = 2 * 4 * 3 * trainable_numel}));
}

TEST(PredictedBytesTest, MixedPrecisionTakesEighteenBytesPerElement) {
  const LayerSpec spec{.name = "bf16",
                       .tensors = {{.name = "w", .shape = {4096, 16}, .dtype = DType::kBFloat16}}};
  const std::vector<LayerPlan> layers = {PlanLayer(spec, {.dp = 4})};
  const PredictedBytes bytes = PredictBytes(layers, 0);
  EXPECT_EQ(bytes.Total(), (2 + 4 + 12) * 4096 * 16 / 4);
}

TEST(PredictedBytesTest, SlotsHaveTheSizeOfTheLargestLayer) {
  const auto plan = [](int64_t numel) {
    return PlanLayer({.name = "l", .tensors = {{.name = "w", .shape = {numel}}}}, {.dp = 2});
  };
  const std::vector<LayerPlan> layers = {plan(100), plan(100000), plan(5000)};
  EXPECT_EQ(PredictBytes(layers, 3).slots, 3 * layers[1].slot_bytes);
  EXPECT_EQ(PredictBytes({}, 3).Total(), 0);
}

}  // namespace
}  // namespace zerod
