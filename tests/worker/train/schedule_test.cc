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

}  // namespace
}  // namespace zerod::train
