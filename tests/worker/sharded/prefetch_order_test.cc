#include "worker/sharded/prefetch_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zerod {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Runs one training pass and returns what was expected after each call.
std::vector<std::vector<size_t>> Pass(PrefetchOrder& order, const std::vector<size_t>& calls,
                                      size_t depth) {
  order.BeginPass(/*training=*/true);
  std::vector<std::vector<size_t>> expected;
  expected.reserve(calls.size());
  for (size_t layer : calls) expected.push_back(order.Call(layer, depth));
  order.BeginPass(/*training=*/true);
  return expected;
}

TEST(PrefetchOrderTest, ExpectsNothingBeforeTheFirstPassIsOver) {
  PrefetchOrder order;
  EXPECT_THAT(Pass(order, {0, 1, 2}, 1), ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
}

TEST(PrefetchOrderTest, ExpectsWhatItWasToldBeforeTheFirstPass) {
  PrefetchOrder order;
  order.BeginPass(/*training=*/true);
  order.Expect({0, 1, 2});
  EXPECT_THAT(order.Call(0, 2), ElementsAre(1, 2));
  EXPECT_THAT(order.Call(1, 2), ElementsAre(2));
  EXPECT_FALSE(order.AtEnd());
  order.Call(2, 2);
  EXPECT_TRUE(order.AtEnd());
}

TEST(PrefetchOrderTest, WhatItSawCountsMoreThanWhatItWasTold) {
  PrefetchOrder order;
  order.BeginPass(/*training=*/true);
  order.Expect({0, 1, 2});
  for (size_t layer : {0, 2, 1}) order.Call(layer, 1);
  order.BeginPass(/*training=*/true);
  order.Expect({0, 1, 2});
  EXPECT_THAT(order.Call(0, 1), ElementsAre(2));
  EXPECT_THAT(order.Call(2, 1), ElementsAre(1));
  order.Call(1, 1);
  EXPECT_TRUE(order.AtEnd());
}

TEST(PrefetchOrderTest, ExpectsTheOrderOfTheLastPassWhateverTheRegistration) {
  PrefetchOrder order;
  Pass(order, {0, 2, 1}, 1);
  EXPECT_THAT(Pass(order, {0, 2, 1}, 1), ElementsAre(ElementsAre(2), ElementsAre(1), IsEmpty()));
}

TEST(PrefetchOrderTest, LooksAsFarAheadAsTheDepth) {
  PrefetchOrder order;
  Pass(order, {0, 1, 2, 3}, 3);
  EXPECT_THAT(Pass(order, {0, 1, 2, 3}, 3)[0], ElementsAre(1, 2, 3));
  EXPECT_THAT(Pass(order, {0, 1, 2, 3}, 0)[0], IsEmpty());
}

TEST(PrefetchOrderTest, TellsARepeatedLayerByWhereItComesFrom) {
  PrefetchOrder order;
  Pass(order, {0, 7, 1, 7, 2}, 1);
  EXPECT_THAT(
      Pass(order, {0, 7, 1, 7, 2}, 1),
      ElementsAre(ElementsAre(7), ElementsAre(1), ElementsAre(7), ElementsAre(2), IsEmpty()));
}

TEST(PrefetchOrderTest, LearnsAgainWhenTheOrderChanges) {
  PrefetchOrder order;
  Pass(order, {0, 1, 2}, 1);
  Pass(order, {0, 2, 1}, 1);
  EXPECT_THAT(Pass(order, {0, 2, 1}, 1), ElementsAre(ElementsAre(2), ElementsAre(1), IsEmpty()));
}

TEST(PrefetchOrderTest, KnowsTheFirstLayersOfTheNextPass) {
  PrefetchOrder order;
  EXPECT_THAT(order.First(2), IsEmpty());
  Pass(order, {3, 1, 2}, 1);
  EXPECT_THAT(order.First(2), ElementsAre(3, 1));
}

TEST(PrefetchOrderTest, KnowsTheLastLayerOfAPass) {
  PrefetchOrder order;
  Pass(order, {0, 1}, 1);
  order.BeginPass(true);
  order.Call(0, 1);
  EXPECT_FALSE(order.AtEnd());
  order.Call(1, 1);
  EXPECT_TRUE(order.AtEnd());
}

TEST(PrefetchOrderTest, AnEvaluationInAnotherOrderDoesNotDisturbTraining) {
  PrefetchOrder order;
  Pass(order, {0, 1, 2}, 1);
  order.BeginPass(/*training=*/false);
  for (size_t layer : {0, 2, 1}) order.Call(layer, 1);
  EXPECT_THAT(Pass(order, {0, 1, 2}, 1)[0], ElementsAre(1));
}

TEST(PrefetchOrderTest, ACycleOfCallsEnds) {
  PrefetchOrder order;
  order.BeginPass(true);
  for (int round = 0; round < 3; ++round) {
    for (size_t layer : {0, 1}) EXPECT_LE(order.Call(layer, 5).size(), 5u);
  }
}

}  // namespace
}  // namespace zerod
