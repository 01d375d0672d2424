#include "worker/train/schedule.h"

#include <gtest/gtest.h>

namespace zerod::train {
namespace {

TEST(Schedule, RisesLinearlyToTheFullRateAndStaysThere) {
  const Schedule schedule{.lr = 0.5, .warmup_steps = 4};
  EXPECT_EQ(schedule.RateAt(0), 0.125);
  EXPECT_EQ(schedule.RateAt(1), 0.25);
  EXPECT_EQ(schedule.RateAt(2), 0.375);
  EXPECT_EQ(schedule.RateAt(3), 0.5);
  EXPECT_EQ(schedule.RateAt(4), 0.5);
  EXPECT_EQ(schedule.RateAt(1'000'000), 0.5);
}

TEST(Schedule, IsConstantWithoutAWarmUp) {
  EXPECT_EQ((Schedule{.lr = 0.25, .warmup_steps = 0}.RateAt(0)), 0.25);
  EXPECT_EQ((Schedule{.lr = 0.25, .warmup_steps = 1}.RateAt(0)), 0.25);
}

TEST(Schedule, FallsLinearlyFromTheWarmUpToItsEnd) {
  const Schedule schedule{
      .lr = 1, .warmup_steps = 2, .decay = Decay::kLinear, .min_lr = 0.5, .end_step = 6};
  EXPECT_EQ(schedule.RateAt(0), 0.5);
  EXPECT_EQ(schedule.RateAt(1), 1);
  EXPECT_EQ(schedule.RateAt(2), 1);
  EXPECT_EQ(schedule.RateAt(3), 0.875);
  EXPECT_EQ(schedule.RateAt(5), 0.625);
  EXPECT_EQ(schedule.RateAt(6), 0.5);
  EXPECT_EQ(schedule.RateAt(1'000'000), 0.5);
}

TEST(Schedule, FallsByHalfAWaveOfTheCosine) {
  const Schedule schedule{.lr = 1, .decay = Decay::kCosine, .min_lr = 0, .end_step = 12};
  EXPECT_EQ(schedule.RateAt(0), 1);
  EXPECT_NEAR(schedule.RateAt(4), 0.75, 1e-15);  // cos 60 degrees is 1/2
  EXPECT_NEAR(schedule.RateAt(6), 0.5, 1e-15);
  EXPECT_NEAR(schedule.RateAt(8), 0.25, 1e-15);
  EXPECT_EQ(schedule.RateAt(12), 0);
}

TEST(Schedule, EndsAtTheLowestRateIfTheWarmUpTakesAllSteps) {
  const Schedule schedule{
      .lr = 1, .warmup_steps = 4, .decay = Decay::kLinear, .min_lr = 0.25, .end_step = 4};
  EXPECT_EQ(schedule.RateAt(3), 1);
  EXPECT_EQ(schedule.RateAt(4), 0.25);
}

}  // namespace
}  // namespace zerod::train
