#include "worker/train/summary.h"

#include <gtest/gtest.h>

namespace zerod::train {
namespace {

/// A trained matrix of 2000 elements and a frozen vector of 500, each in a chunk of its own that is
/// padded and halved: 1024 and 512 elements on each of two ranks.
LayerPlan PartlyFrozenLayer() {
  LayerPlan plan;
  plan.spec.tensors = {{.name = "weight", .shape = {40, 50}, .trainable = true},
                       {.name = "frozen", .shape = {500}, .trainable = false}};
  plan.tensors = {{.chunk = 0, .offset_numel = 0, .numel = 2000},
                  {.chunk = 1, .offset_numel = 0, .numel = 500}};
  plan.chunks = {{.trainable = true, .padded_numel = 2048, .shard_numel = 1024},
                 {.trainable = false, .padded_numel = 1024, .shard_numel = 512}};
  plan.slot_bytes = 8192;
  plan.gathered_bytes = 4 * (2048 + 1024);
  return plan;
}

TEST(Summary, CountsWhatARankHolds) {
  const ModelSize size = MeasureModel({PartlyFrozenLayer(), PartlyFrozenLayer()}, {});
  EXPECT_EQ(size.layers, 2);
  EXPECT_EQ(size.tensors, 4);
  EXPECT_EQ(size.trainable_tensors, 2);
  EXPECT_EQ(size.parameters, 2 * 2500);
  EXPECT_EQ(size.trainable, 2 * 2000);
  EXPECT_EQ(size.parameter_bytes, 2 * 4 * (1024 + 512));
  EXPECT_EQ(size.gradient_bytes, 2 * 4 * 1024);
  EXPECT_EQ(size.optimizer_bytes, 2 * 8 * 1024);
  EXPECT_EQ(size.slot_bytes, 2 * 8192);  // two slots of the largest layer's size
  EXPECT_EQ(size.window_bytes, 0);       // of one node
}

TEST(Summary, HasNoMomentsWithoutAdam) {
  EXPECT_EQ(MeasureModel({PartlyFrozenLayer()}, {.optimizer = OptimizerKind::kSgd}).optimizer_bytes,
            0);
}

TEST(Summary, CountsTheMastersOfTrainedParametersOfSixteenBits) {
  LayerPlan plan = PartlyFrozenLayer();
  for (ChunkPlan& chunk : plan.chunks) chunk.dtype = DType::kBFloat16;
  const ModelSize size = MeasureModel({plan}, {});
  EXPECT_EQ(size.parameter_bytes, 2 * (1024 + 512));
  EXPECT_EQ(size.gradient_bytes, 4 * 1024);
  EXPECT_EQ(size.optimizer_bytes, (4 + 8) * 1024);
}

TEST(Summary, CountsTheLayersThatAreGatheredAtATimeAcrossNodes) {
  const std::vector<LayerPlan> plans(10, PartlyFrozenLayer());
  const int64_t layer_bytes = plans[0].gathered_bytes;
  EXPECT_EQ(MeasureModel(plans, {.node_count = 2}).window_bytes, 3 * layer_bytes);
  EXPECT_EQ(MeasureModel(plans, {.prefetch_depth = 50, .node_count = 2}).window_bytes,
            10 * layer_bytes);
  EXPECT_EQ(MeasureModel(plans, {.window_limit_bytes = 100, .node_count = 2}).window_bytes, 100);
}

TEST(Summary, SaysWhatIsTrainedAndWhatItCosts) {
  const ModelSize size = MeasureModel({PartlyFrozenLayer()}, {.gradient_slots = 1});
  EXPECT_EQ(SummaryText(size, {.dp = 2, .tp = 1}, 1),
            "model: 2.5k parameters in 1 layer, sharded over 2 ranks on 1 node\n"
            "trained: 2.0k parameters in 1 of 2 tensors; frozen: 500, which cost only their own "
            "bytes\n"
            "each rank holds: parameters 6.0 KiB, gradients 4.0 KiB, optimizer 8.0 KiB, gradient "
            "slots 8.0 KiB; predicted peak 26.0 KiB");
}

TEST(Summary, TellsHowARunWent) {
  RunResult result{.first_step = 4, .last_step = 8, .tokens = 4096, .seconds = 2, .loss = 2.5};
  EXPECT_EQ(ResultText(result),
            "trained 4 steps on 4.1k tokens in 0:02, 2.0k tokens/s; last loss 2.500");
  result.eval_loss = 1.5;
  result.best_eval_loss = 1.25;
  result.best_step = 6;
  EXPECT_EQ(ResultText(result),
            "trained 4 steps on 4.1k tokens in 0:02, 2.0k tokens/s; last loss 2.500\n"
            "held-out loss 1.500 nats per token, perplexity 4.48; best 1.250 after step 6");
}

}  // namespace
}  // namespace zerod::train
