#include "server/layout/planner.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/error.h"

namespace zerod {
namespace {

using ::testing::HasSubstr;

TensorSpec Tensor(const std::string& name, std::vector<int64_t> shape) {
  return {.name = name, .shape = std::move(shape)};
}

TensorSpec Frozen(TensorSpec tensor) {
  tensor.trainable = false;
  return tensor;
}

TensorSpec WithDType(TensorSpec tensor, DType dtype) {
  tensor.dtype = dtype;
  return tensor;
}

LayerSpec Layer(std::vector<TensorSpec> tensors) {
  return {.name = "layer", .tensors = std::move(tensors)};
}

std::string ErrorOf(const LayerSpec& spec, const Mesh& mesh = {}) {
  try {
    PlanLayer(spec, mesh);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

constexpr int64_t kPageNumel = 1024;  // float32 elements of a page

TEST(PlannerTest, FiveElementsOnFourRanksTakeOnePageEach) {
  const LayerPlan plan = PlanLayer(Layer({Tensor("w", {5})}), {.dp = 4});
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_EQ(plan.chunks[0].shard_numel, kPageNumel);
  EXPECT_EQ(plan.chunks[0].padded_numel, 4 * kPageNumel);
  EXPECT_EQ(plan.gathered_bytes, 4 * 4096);
  EXPECT_EQ(plan.slot_bytes, 4 * 4096);
  EXPECT_EQ(plan.tensors[0].numel, 5);
}

TEST(PlannerTest, ShardsAreThePaddedShareForEveryWorldSize) {
  for (const int64_t rows : {1, 5, 8, 333, 4096}) {
    for (const int dp : {1, 2, 3, 4, 7, 8}) {
      const int64_t numel = rows * 48;
      const LayerPlan plan = PlanLayer(Layer({Tensor("w", {rows, 48})}), {.dp = dp});
      const int64_t unit = dp * kPageNumel;
      EXPECT_EQ(plan.chunks[0].padded_numel, (numel + unit - 1) / unit * unit)
          << rows << " rows, dp " << dp;
      EXPECT_EQ(plan.chunks[0].shard_numel * dp, plan.chunks[0].padded_numel);
      EXPECT_EQ(plan.tensors[0].numel, numel);
    }
  }
}

TEST(PlannerTest, OneRankHoldsAllInPages) {
  const LayerPlan plan = PlanLayer(Layer({Tensor("w", {1025})}), {.dp = 1});
  EXPECT_EQ(plan.chunks[0].shard_numel, 2048);
  EXPECT_EQ(plan.chunks[0].padded_numel, 2048);
}

TEST(PlannerTest, TensorParallelismDoesNotShrinkShards) {
  const LayerSpec spec = Layer({Tensor("w", {5000})});
  EXPECT_EQ(PlanLayer(spec, {.dp = 2, .tp = 4}).chunks[0].shard_numel,
            PlanLayer(spec, {.dp = 2, .tp = 1}).chunks[0].shard_numel);
}

TEST(PlannerTest, OffsetsAreMultiplesOf64BytesInRegistrationOrder) {
  const LayerPlan plan = PlanLayer(Layer({Tensor("bias", {5}), Tensor("scale", {}),
                                          Tensor("weight", {16}), Tensor("gain", {1})}),
                                   {.dp = 2});
  ASSERT_EQ(plan.tensors.size(), 4u);
  EXPECT_EQ(plan.tensors[0].offset_numel, 0);
  EXPECT_EQ(plan.tensors[1].offset_numel, 16);
  EXPECT_EQ(plan.tensors[1].numel, 1);  // a scalar has one element
  EXPECT_EQ(plan.tensors[2].offset_numel, 32);
  EXPECT_EQ(plan.tensors[3].offset_numel, 48);
}

TEST(PlannerTest, ATensorWithoutElementsKeepsItsPlace) {
  const LayerPlan plan =
      PlanLayer(Layer({Tensor("a", {3}), Tensor("none", {0, 7}), Tensor("b", {3})}), {.dp = 2});
  EXPECT_EQ(plan.tensors[1].numel, 0);
  EXPECT_EQ(plan.tensors[1].offset_numel, 16);
  EXPECT_EQ(plan.tensors[2].offset_numel, 16);
}

TEST(PlannerTest, ALayerOfEmptyTensorsHasOnePagePerRank) {
  const LayerPlan plan = PlanLayer(Layer({Tensor("none", {0})}), {.dp = 3});
  EXPECT_EQ(plan.chunks[0].shard_numel, kPageNumel);
}

TEST(PlannerTest, TrainabilityAndDTypeSplitChunksInOrderOfTheirFirstTensor) {
  const LayerPlan plan = PlanLayer(Layer({Tensor("a", {10}), Frozen(Tensor("b", {10})),
                                          WithDType(Tensor("c", {10}), DType::kBFloat16),
                                          Tensor("d", {10}), Frozen(Tensor("e", {10}))}),
                                   {.dp = 2});
  ASSERT_EQ(plan.chunks.size(), 3u);
  EXPECT_TRUE(plan.chunks[0].trainable);
  EXPECT_FALSE(plan.chunks[1].trainable);
  EXPECT_EQ(plan.chunks[2].dtype, DType::kBFloat16);
  const std::vector<int32_t> want_chunks = {0, 1, 2, 0, 1};
  for (size_t i = 0; i < want_chunks.size(); ++i) {
    EXPECT_EQ(plan.tensors[i].chunk, want_chunks[i]) << plan.spec.tensors[i].name;
  }
  EXPECT_EQ(plan.tensors[3].offset_numel, 16);  // behind "a" in the same chunk
}

TEST(PlannerTest, SlotsHoldTrainableChunksOnly) {
  const LayerPlan plan =
      PlanLayer(Layer({Frozen(Tensor("a", {2000})),
                       WithDType(Tensor("b", {5000}), DType::kBFloat16), Tensor("c", {3000})}),
                {.dp = 2});
  EXPECT_EQ(plan.chunks[0].slot_offset_bytes, -1);
  EXPECT_EQ(plan.chunks[1].slot_offset_bytes, 0);
  // 5000 bf16 elements are padded to 2 x 4096, and their gradients are float32.
  EXPECT_EQ(plan.chunks[1].padded_numel, 8192);
  EXPECT_EQ(plan.chunks[2].slot_offset_bytes, 8192 * 4);
  EXPECT_EQ(plan.slot_bytes, 8192 * 4 + plan.chunks[2].padded_numel * 4);
}

TEST(PlannerTest, StagingHasRoomForFloat32OfEveryChunk) {
  const LayerPlan plan = PlanLayer(
      Layer({WithDType(Tensor("a", {5000}), DType::kBFloat16), Frozen(Tensor("b", {3000}))}),
      {.dp = 2});
  EXPECT_EQ(plan.chunks[0].stage_offset_bytes, 0);
  EXPECT_EQ(plan.chunks[1].stage_offset_bytes, plan.chunks[0].padded_numel * 4);
  EXPECT_EQ(plan.stage_bytes, (plan.chunks[0].padded_numel + plan.chunks[1].padded_numel) * 4);
  EXPECT_EQ(plan.gathered_bytes, plan.chunks[0].padded_numel * 2 + plan.chunks[1].padded_numel * 4);
}

TEST(PlannerTest, ShardsAreWholePagesInTheNarrowestStoredDType) {
  LayerSpec spec = Layer({Tensor("w", {1})});
  spec.reduce_dtype = DType::kBFloat16;
  EXPECT_EQ(PlanLayer(spec, {.dp = 2}).chunks[0].shard_numel, 2048);
  // A frozen chunk has no gradients, so their dtype doesn't count.
  spec.tensors[0].trainable = false;
  EXPECT_EQ(PlanLayer(spec, {.dp = 2}).chunks[0].shard_numel, 1024);
}

TEST(PlannerTest, PlansAreEqualForEqualArguments) {
  const LayerSpec spec = Layer({Tensor("a", {5, 7}), Frozen(Tensor("b", {3}))});
  const LayerPlan first = PlanLayer(spec, {.dp = 3}), second = PlanLayer(spec, {.dp = 3});
  EXPECT_EQ(first.spec, second.spec);
  EXPECT_EQ(first.chunks[0].padded_numel, second.chunks[0].padded_numel);
  EXPECT_EQ(first.tensors[1].offset_numel, second.tensors[1].offset_numel);
}

TEST(PlannerTest, ImpossibleShapesAreRefusedByName) {
  EXPECT_THAT(ErrorOf(Layer({Tensor("w", {2, -1})})),
              HasSubstr("layer 'layer' tensor 'w': size -1 in its shape is negative"));
  EXPECT_THAT(ErrorOf(Layer({Tensor("w", std::vector<int64_t>(9, 1))})),
              HasSubstr("9 dimensions; at most 8"));
  EXPECT_EQ(ErrorOf(Layer({Tensor("w", std::vector<int64_t>(8, 1))})), "no error");
}

TEST(PlannerTest, SizesThatWouldOverflowAreRefused) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{kHuge, kHuge},
                                            {int64_t{1} << 40},
                                            {int64_t{1} << 20, 1 << 20},
                                            {kHuge, 0},
                                            {0, kHuge}}) {
    EXPECT_THAT(ErrorOf(Layer({Tensor("w", shape)})), HasSubstr("more than 1099511627775 elements"))
        << shape[0];
  }
  EXPECT_EQ(ErrorOf(Layer({Tensor("w", {kNumelMax})}), {.dp = 1 << 20}), "no error");
  EXPECT_THAT(ErrorOf(Layer({Tensor("w", {kNumelMax}), Tensor("x", {1})})),
              HasSubstr("tensor 'x': with it"));
}

TEST(PlannerTest, BadNamesAndNumbersAreRefused) {
  EXPECT_THAT(ErrorOf(Layer({})), HasSubstr("layer 'layer' has no tensors"));
  EXPECT_THAT(ErrorOf(Layer({Tensor("", {1})})), HasSubstr("no name"));
  EXPECT_THAT(ErrorOf({.name = "", .tensors = {Tensor("w", {1})}}), HasSubstr("no name"));
  EXPECT_THAT(ErrorOf(Layer({Tensor("w", {1}), Tensor("w", {1})})), HasSubstr("registered twice"));
  EXPECT_THAT(ErrorOf(Layer({WithDType(Tensor("w", {1}), static_cast<DType>(9))})),
              HasSubstr("unknown element type 9"));
  TensorSpec tensor = Tensor("w", {1});
  tensor.lr_scale = -1.0f;
  EXPECT_THAT(ErrorOf(Layer({tensor})), HasSubstr("multiplier -1"));
  EXPECT_THAT(ErrorOf(Layer({Tensor("w", {1})}), {.dp = 0}), HasSubstr("dp 0 x tp 1"));
}

}  // namespace
}  // namespace zerod
