#include "server/engine/step_decision.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

namespace zerod {
namespace {

using ::testing::ElementsAre;

StepArguments Arguments(double divisor, double max_norm) {
  StepArguments arguments;
  arguments.gradient_divisor = divisor;
  arguments.max_grad_norm = max_norm;
  return arguments;
}

TEST(StepDecisionTest, TheNormIsOfTheSumOverRanksAfterDivision) {
  const StepDecision decision = DecideStep(Arguments(2, 0), {{9.0, 16.0}}, {});
  EXPECT_TRUE(decision.apply);
  EXPECT_DOUBLE_EQ(decision.grad_norm, 2.5);
  EXPECT_DOUBLE_EQ(decision.factor, 0.5);
  EXPECT_TRUE(decision.values.empty());
}

TEST(StepDecisionTest, ClippingScalesToTheBoundOverNormPlusOneMillionth) {
  EXPECT_DOUBLE_EQ(DecideStep(Arguments(2, 1), {{9.0, 16.0}}, {}).factor, 0.5 * (1 / 2.500001));
  EXPECT_DOUBLE_EQ(DecideStep(Arguments(2, 3), {{9.0, 16.0}}, {}).factor, 0.5);
}

TEST(StepDecisionTest, ValuesAreSummedByColumn) {
  EXPECT_THAT(DecideStep(Arguments(1, 0), {{1.0, 1.0}}, {{1.0, 2.0, 10.0, 20.0}}).values,
              ElementsAre(11.0, 22.0));
}

TEST(StepDecisionTest, ANormThatIsNotFiniteSkipsTheStep) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(DecideStep(Arguments(1, 1), {{1.0, nan}}, {}).apply);
  EXPECT_FALSE(DecideStep(Arguments(1, 1), {{infinity, 0.0}}, {}).apply);
  EXPECT_FALSE(DecideStep(Arguments(nan, 0), {{1.0, 1.0}}, {}).apply);
}

TEST(StepDecisionTest, ADivisorTooSmallToInvertSkipsTheStepEvenIfAllGradientsAreZero) {
  EXPECT_FALSE(DecideStep(Arguments(5e-324, 0), {{0.0}}, {}).apply);
}

}  // namespace
}  // namespace zerod
