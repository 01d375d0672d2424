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
  return plan;
}

TEST(Summary, CountsWhatARankHolds) {
  const ModelSize size =
      MeasureModel({PartlyFrozenLayer(), PartlyFrozenLayer()}, OptimizerKind::kAdamW, 2);
  EXPECT_EQ(size.layers, 2);
  EXPECT_EQ(size.parameters, 2 * 2500);
  EXPECT_EQ(size.trainable, 2 * 2000);
  EXPECT_EQ(size.parameter_bytes, 2 * 4 * (1024 + 512));
  EXPECT_EQ(size.gradient_bytes, 2 * 4 * 1024);
  EXPECT_EQ(size.moment_bytes, 2 * 8 * 1024);
  EXPECT_EQ(size.slot_bytes, 2 * 8192);  // two slots of the largest layer's size
}

TEST(Summary, HasNoMomentsWithoutAdam) {
  EXPECT_EQ(MeasureModel({PartlyFrozenLayer()}, OptimizerKind::kSgd, 2).moment_bytes, 0);
}

TEST(Summary, SaysWhatIsShardedOverWhom) {
  const ModelSize size = MeasureModel({PartlyFrozenLayer()}, OptimizerKind::kAdamW, 1);
  EXPECT_EQ(SummaryText(size, {.dp = 2, .tp = 1}, 1),
            "model: 2.5k parameters in 1 layer, 2.0k of them trained, sharded over 2 ranks on 1 "
            "node\n"
            "each rank holds: parameters 6.0 KiB, gradients 4.0 KiB, moments 8.0 KiB, gradient "
            "slots 8.0 KiB");
}

}  // namespace
}  // namespace zerod::train
