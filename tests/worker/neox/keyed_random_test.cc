#include "worker/neox/keyed_random.h"

#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zerod::neox {
namespace {

using testing::ElementsAre;

TEST(KeyedRandom, GivesThePublishedWordsOfPhilox) {
  EXPECT_THAT(Philox({0, 0, 0, 0}, 0), ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

std::vector<float> Draw(uint64_t seed, const char* name, uint64_t first, size_t count) {
  std::vector<float> values(count);
  KeyedRandom(seed, name).FillNormal(first, 0, 1, values);
  return values;
}

TEST(KeyedRandom, PartsAreThePartsOfTheWhole) {
  const std::vector<float> whole = Draw(7, "w", 0, 41);
  for (size_t first = 0; first < 9; ++first) {
    for (size_t count = 0; count < 32; ++count) {
      const auto at = whole.begin() + static_cast<std::ptrdiff_t>(first);
      EXPECT_EQ(Draw(7, "w", first, count),
                std::vector<float>(at, at + static_cast<std::ptrdiff_t>(count)));
    }
  }
}

TEST(KeyedRandom, SeedAndNameBothMatter) {
  EXPECT_NE(Draw(7, "w", 0, 4), Draw(8, "w", 0, 4));
  EXPECT_NE(Draw(7, "w", 0, 4), Draw(7, "v", 0, 4));
  EXPECT_NE(Draw(7, "w", 0, 4), Draw(uint64_t{7} << 32, "w", 0, 4));
}

TEST(KeyedRandom, HasTheMomentsOfTheNormalDistribution) {
  constexpr size_t kCount = 1 << 20;
  std::vector<float> values(kCount);
  KeyedRandom(1, "w").FillNormal(0, 3, 2, values);
  double moments[5] = {};
  double neighbours = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const double x = (values[i] - 3) / 2;
    for (int k = 1; k < 5; ++k) moments[k] += std::pow(x, k) / kCount;
    if (i > 0) neighbours += x * (values[i - 1] - 3) / 2 / kCount;
  }
  // Five standard errors of each.
  EXPECT_NEAR(moments[1], 0, 5 * std::sqrt(1.0 / kCount));
  EXPECT_NEAR(moments[2], 1, 5 * std::sqrt(2.0 / kCount));
  EXPECT_NEAR(moments[3], 0, 5 * std::sqrt(15.0 / kCount));
  EXPECT_NEAR(moments[4], 3, 5 * std::sqrt(96.0 / kCount));
  EXPECT_NEAR(neighbours, 0, 5 * std::sqrt(1.0 / kCount));
}

TEST(KeyedRandom, NoDeviationGivesTheMean) {
  std::vector<float> values(5);
  KeyedRandom(1, "w").FillNormal(2, 1, 0, values);
  EXPECT_THAT(values, ElementsAre(1, 1, 1, 1, 1));
}

}  // namespace
}  // namespace zerod::neox
