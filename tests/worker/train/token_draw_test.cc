#include "worker/train/token_draw.h"

#include <cmath>
#include <map>
#include <vector>

#include <gtest/gtest.h>

namespace zerod::train {
namespace {

/// Logits of these probabilities, shifted.
std::vector<float> LogitsOf(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  logits.reserve(probabilities.size());
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)) + 40);
  return logits;
}

/// Parts of 20000 draws.
std::map<int64_t, double> Parts(const std::vector<float>& logits, const DrawOptions& options) {
  constexpr int kDraws = 20000;
  std::mt19937_64 random(1);
  std::map<int64_t, double> parts;
  for (int i = 0; i < kDraws; ++i) parts[DrawToken(logits, options, random)] += 1.0 / kDraws;
  return parts;
}

/// Four standard deviations of a part of 20000.
constexpr double kTolerance = 0.015;

void ExpectParts(const std::map<int64_t, double>& parts,
                 const std::map<int64_t, double>& expected) {
  EXPECT_EQ(parts.size(), expected.size());
  for (const auto& [index, part] : expected) {
    ASSERT_TRUE(parts.contains(index)) << index;
    EXPECT_NEAR(parts.at(index), part, kTolerance) << index;
  }
}

TEST(TokenDraw, FollowsTheProbabilities) {
  ExpectParts(Parts(LogitsOf({0.2, 0.5, 0.3}), {}), {{0, 0.2}, {1, 0.5}, {2, 0.3}});
}

TEST(TokenDraw, SharpensWithALowTemperatureAndFlattensWithAHighOne) {
  const std::vector<float> logits = LogitsOf({0.2, 0.5, 0.3});
  // Squares: 4, 25, 9 of 38. Roots: 0.447, 0.707, 0.548 of 1.702.
  ExpectParts(Parts(logits, {.temperature = 0.5}), {{0, 4 / 38.0}, {1, 25 / 38.0}, {2, 9 / 38.0}});
  ExpectParts(Parts(logits, {.temperature = 2}), {{0, 0.263}, {1, 0.415}, {2, 0.322}});
}

TEST(TokenDraw, TakesTheMostLikelyAtTemperatureZeroAndTheFirstOfEquals) {
  std::mt19937_64 random(1);
  EXPECT_EQ(DrawToken(std::vector<float>{1, 3, 2, 3}, {.temperature = 0}, random), 1);
  EXPECT_EQ(random, std::mt19937_64(1));
}

TEST(TokenDraw, KeepsTheKMostLikely) {
  const std::vector<float> logits = LogitsOf({0.1, 0.4, 0.2, 0.3});
  ExpectParts(Parts(logits, {.top_k = 2}), {{1, 4 / 7.0}, {3, 3 / 7.0}});
  ExpectParts(Parts(logits, {.top_k = 1}), {{1, 1}});
  ExpectParts(Parts(logits, {.top_k = 9}), {{0, 0.1}, {1, 0.4}, {2, 0.2}, {3, 0.3}});
  ExpectParts(Parts({5, 5, 5, 5}, {.top_k = 2}), {{0, 0.5}, {1, 0.5}});
}

TEST(TokenDraw, KeepsTheFewestThatHaveTheProbability) {
  const std::vector<float> logits = LogitsOf({0.1, 0.4, 0.2, 0.3});
  ExpectParts(Parts(logits, {.top_p = 0.65}), {{1, 4 / 7.0}, {3, 3 / 7.0}});
  ExpectParts(Parts(logits, {.top_p = 0.75}), {{1, 4 / 9.0}, {3, 3 / 9.0}, {2, 2 / 9.0}});
  ExpectParts(Parts(logits, {.top_p = 0.01}), {{1, 1}});
}

TEST(TokenDraw, CutsByNumberFirstThenByWhatIsLeft) {
  const std::vector<float> logits = LogitsOf({0.1, 0.4, 0.2, 0.3});
  // Of the two left the first has 4/7 = 0.571.
  ExpectParts(Parts(logits, {.top_k = 2, .top_p = 0.56}), {{1, 1}});
  ExpectParts(Parts(logits, {.top_k = 2, .top_p = 0.58}), {{1, 4 / 7.0}, {3, 3 / 7.0}});
}

TEST(TokenDraw, SurvivesLogitsFarApart) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(DrawToken(std::vector<float>{-3e38F, 100, -INFINITY}, {.top_p = 0.9}, random), 1);
  }
}

}  // namespace
}  // namespace zerod::train
