#include "worker/neox/sampling.h"

#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "proto/contract/error.h"

namespace zerod::neox {
namespace {

TEST(Sampling, EverySampleOfAStepIsReadOnceInRankThenMicroBatchOrder) {
  std::vector<int64_t> order;
  for (int64_t dp_index = 0; dp_index < 3; ++dp_index) {
    const BatchShape shape{.batch = 24, .dp_size = 3, .dp_index = dp_index, .micro_batches = 4};
    CheckBatchShape(shape);
    for (int64_t micro_batch = 0; micro_batch < 4; ++micro_batch) {
      for (int64_t i = 0; i < shape.micro_batch_size(); ++i) {
        order.push_back(FirstSample(shape, 5, micro_batch) + i);
      }
    }
  }
  ASSERT_EQ(order.size(), 24U);
  for (int64_t i = 0; i < 24; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], 5 * 24 + i);
}

TEST(Sampling, RefusesBatchesThatCantBeDivided) {
  EXPECT_THROW(CheckBatchShape({.batch = 5, .dp_size = 2}), Error);
  EXPECT_THROW(CheckBatchShape({.batch = 4, .dp_size = 2, .micro_batches = 4}), Error);
  EXPECT_THROW(CheckBatchShape({.batch = 0}), Error);
  EXPECT_THROW(CheckBatchShape({.batch = 4, .micro_batches = 0}), Error);
}

TEST(Sampling, PositionsWrapAroundTheText) {
  EXPECT_EQ(TokenPosition(0, 0, 16, 1021), 0);
  EXPECT_EQ(TokenPosition(63, 12, 16, 1021), 1020);
  EXPECT_EQ(TokenPosition(63, 13, 16, 1021), 0);
  EXPECT_EQ(TokenPosition(1021, 3, 16, 1021), 3);
  // (2^62 · 16 + 1) mod (2^31 − 1) = 2^66 mod (2^31 − 1) + 1 = 2^4 + 1
  EXPECT_EQ(TokenPosition(int64_t{1} << 62, 1, 16, (int64_t{1} << 31) - 1), 17);
}

TEST(Sampling, TheLastStepOfAnEpochIsBegunIfNotFilled) {
  EXPECT_EQ(StepsOfEpochs(1, 1000, 100), 10);
  EXPECT_EQ(StepsOfEpochs(1, 1001, 100), 11);
  EXPECT_EQ(StepsOfEpochs(2, 1001, 100), 21);
  EXPECT_EQ(StepsOfEpochs(0.5, 1000, 100), 5);
  EXPECT_EQ(StepsOfEpochs(3, 7 * (int64_t{1} << 40), int64_t{1} << 20), 21 << 20);
  EXPECT_THROW(StepsOfEpochs(1e300, 1, 1), Error);
}

TEST(Sampling, EvaluationCountsEverySampleOnce) {
  for (int64_t samples = 1; samples < 20; ++samples) {
    std::multiset<int64_t> counted;
    for (int64_t dp_index = 0; dp_index < 2; ++dp_index) {
      const BatchShape shape{.batch = 12, .dp_size = 2, .dp_index = dp_index, .micro_batches = 2};
      for (int64_t round = 0; round < EvalRounds(shape, samples); ++round) {
        const EvalPart part = EvalPartOf(shape, samples, round);
        for (int64_t i = 0; i < part.valid; ++i) counted.insert(part.first + i);
      }
    }
    ASSERT_EQ(counted.size(), static_cast<size_t>(samples));
    EXPECT_EQ(std::set<int64_t>(counted.begin(), counted.end()).size(), counted.size());
    EXPECT_EQ(*counted.rbegin(), samples - 1);
  }
}

TEST(Shuffle, PermutesEveryPass) {
  for (const int64_t count : {1, 2, 3, 16, 17, 1000}) {
    const Shuffle shuffle(42, count);
    for (int64_t pass = 0; pass < 3; ++pass) {
      std::set<int64_t> seen;
      for (int64_t i = 0; i < count; ++i) seen.insert(shuffle.At(pass * count + i));
      EXPECT_EQ(seen.size(), static_cast<size_t>(count));
      EXPECT_EQ(*seen.begin(), pass * count);
      EXPECT_EQ(*seen.rbegin(), pass * count + count - 1);
    }
  }
}

TEST(Shuffle, SeedsAndPassesGiveOtherOrders) {
  const Shuffle one(1, 1000);
  const Shuffle two(2, 1000);
  int same_seed = 0;
  int same_pass = 0;
  int fixed = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    same_seed += one.At(i) == two.At(i) ? 1 : 0;
    same_pass += one.At(i) + 1000 == one.At(1000 + i) ? 1 : 0;
    fixed += one.At(i) == i ? 1 : 0;
  }
  // Random permutations agree in one place on average; ten are one in ten million.
  EXPECT_LT(same_seed, 10);
  EXPECT_LT(same_pass, 10);
  EXPECT_LT(fixed, 10);
}

}  // namespace
}  // namespace zerod::neox
