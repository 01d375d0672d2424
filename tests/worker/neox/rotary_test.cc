#include "worker/neox/rotary.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

namespace zerod::neox {
namespace {

constexpr int64_t kBatch = 2;
constexpr int64_t kPositions = 5;
constexpr int64_t kHeads = 3;

Config WithFraction(int64_t head_size, double fraction) {
  Config config;
  config.hidden_size = kHeads * head_size;
  config.num_attention_heads = kHeads;
  config.rotary_pct = fraction;
  config.rotary_emb_base = 100;
  return config;
}

/// x [B, H, T, D] rotated by plain operators, whose derivative LibTorch knows.
at::Tensor Rotated(const at::Tensor& x, const RotaryTable::Angles& angles) {
  const int64_t pairs = angles.cosine.size(1);
  const at::Tensor low = x.narrow(3, 0, pairs);
  const at::Tensor high = x.narrow(3, pairs, pairs);
  const at::Tensor rest = x.narrow(3, 2 * pairs, x.size(3) - 2 * pairs);
  return at::cat(
      {low * angles.cosine - high * angles.sine, high * angles.cosine + low * angles.sine, rest},
      3);
}

Heads PlainSplit(const at::Tensor& fused, const RotaryTable::Angles& angles) {
  const auto parts = fused.view({kBatch, kPositions, kHeads, 3, -1}).unbind(3);
  return {Rotated(parts[0].transpose(1, 2), angles), Rotated(parts[1].transpose(1, 2), angles),
          parts[2].transpose(1, 2)};
}

class Rotary : public testing::TestWithParam<std::pair<int64_t, double>> {};

TEST_P(Rotary, AgreesWithPlainOperatorsInBothDirections) {
  RotaryTable table(WithFraction(GetParam().first, GetParam().second));
  const RotaryTable::Angles angles = table.Range(0, kPositions);
  const at::Tensor source = at::randn({kBatch, kPositions, kHeads * 3 * GetParam().first});
  const at::Tensor plain_input = source.clone().requires_grad_();
  const at::Tensor input = source.clone().requires_grad_();
  const Heads plain = PlainSplit(plain_input, angles);
  const Heads split = SplitAndRotate(input * 1, kHeads, angles);
  EXPECT_TRUE(split.query.allclose(plain.query, 1e-6, 1e-6));
  EXPECT_TRUE(split.key.allclose(plain.key, 1e-6, 1e-6));
  EXPECT_TRUE(split.value.equal(plain.value));
  const at::Tensor weight = at::randn_like(split.query);
  for (const Heads& heads : {plain, split}) {
    (heads.query * weight + heads.key.sin() + heads.value.square()).sum().backward();
  }
  EXPECT_TRUE(input.grad().allclose(plain_input.grad(), 1e-5, 1e-5));
}

TEST_P(Rotary, TreatsAMissingGradientAsZero) {
  RotaryTable table(WithFraction(GetParam().first, GetParam().second));
  const at::Tensor input =
      at::randn({kBatch, kPositions, kHeads * 3 * GetParam().first}).requires_grad_();
  SplitAndRotate(input * 1, kHeads, table.Range(0, kPositions)).value.sum().backward();
  const auto parts = input.grad().view({kBatch, kPositions, kHeads, 3, -1}).unbind(3);
  EXPECT_TRUE(parts[0].equal(at::zeros_like(parts[0])));
  EXPECT_TRUE(parts[1].equal(at::zeros_like(parts[1])));
  EXPECT_TRUE(parts[2].equal(at::zeros_like(parts[2]) + 1));
}

INSTANTIATE_TEST_SUITE_P(Heads, Rotary,
                         testing::Values(std::pair(8, 0.25), std::pair(8, 1.0), std::pair(8, 0.0),
                                         std::pair(12, 0.25), std::pair(64, 0.5)));

TEST(RotaryTable, HasTheAnglesOfTheFormulaAtAnyLength) {
  RotaryTable table(WithFraction(12, 0.25));  // 3 dimensions: 2 pairs, exponents 0 and 2/3
  for (const int64_t positions : {3, 40, 7}) {
    const RotaryTable::Angles angles = table.Range(0, positions);
    ASSERT_EQ(angles.cosine.sizes(), (std::vector<int64_t>{positions, 2}));
    for (int64_t t = 0; t < positions; ++t) {
      for (int64_t pair = 0; pair < 2; ++pair) {
        const double angle =
            static_cast<double>(t) * std::pow(100.0, -2.0 * static_cast<double>(pair) / 3);
        EXPECT_NEAR(angles.cosine[t][pair].item<double>(), std::cos(angle), 5e-6);
        EXPECT_NEAR(angles.sine[t][pair].item<double>(), std::sin(angle), 5e-6);
      }
    }
  }
}

}  // namespace
}  // namespace zerod::neox
