#include "worker/neox/loss.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace zerod::neox {
namespace {

TEST(CrossEntropy, OfEqualLogitsIsTheLogarithmOfTheirNumber) {
  const at::Tensor logits = at::zeros({2, 3, 7});
  const at::Tensor targets = at::zeros({2, 3}, at::kLong);
  EXPECT_NEAR(CrossEntropy(logits, targets).item<double>(), std::log(7.0), 1e-7);
}

/// Vocabularies whose rows are cut into one part, a few, and one part each.
class CrossEntropySize : public testing::TestWithParam<int64_t> {};

TEST_P(CrossEntropySize, AgreesWithLibTorchInBothDirections) {
  const int64_t vocabulary = GetParam();
  const at::Tensor plain = (at::randn({3, 11, vocabulary}) * 4).requires_grad_();
  const at::Tensor input = plain.detach().clone().requires_grad_();
  const at::Tensor targets = at::randint(vocabulary, {3, 11}, at::kLong);
  const at::Tensor plain_loss =
      at::cross_entropy_loss(plain.view({-1, vocabulary}), targets.view({-1}));
  const at::Tensor loss = CrossEntropy(input * 1, targets);
  EXPECT_NEAR(loss.item<double>(), plain_loss.item<double>(), 2e-6);
  (plain_loss / 3).backward();
  (loss / 3).backward();
  EXPECT_TRUE(input.grad().allclose(plain.grad(), 1e-5, 1e-9));
}

INSTANTIATE_TEST_SUITE_P(Sizes, CrossEntropySize, testing::Values(2, 5000, 70000));

TEST(CrossEntropy, LeavesOutNegativeTargetsButDividesByAll) {
  const at::Tensor plain = at::randn({2, 5, 31}).requires_grad_();
  const at::Tensor input = plain.detach().clone().requires_grad_();
  at::Tensor targets = at::randint(31, {2, 5}, at::kLong);
  targets[0][1] = -1;
  targets[1][4] = -1;
  const at::Tensor plain_loss =
      at::cross_entropy_loss(plain.view({-1, 31}), targets.view({-1}), {}, at::Reduction::Sum, -1) /
      10;
  const at::Tensor loss = CrossEntropy(input * 1, targets);
  EXPECT_NEAR(loss.item<double>(), plain_loss.item<double>(), 1e-6);
  plain_loss.backward();
  loss.backward();
  EXPECT_TRUE(input.grad().allclose(plain.grad(), 1e-5, 1e-9));
  EXPECT_EQ(input.grad()[0][1].count_nonzero().item<int64_t>(), 0);
}

TEST(CrossEntropy, RefusesASecondBackward) {
  const at::Tensor logits = at::randn({1, 2, 3}).requires_grad_();
  const at::Tensor loss = CrossEntropy(logits * 1, at::zeros({1, 2}, at::kLong));
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(CrossEntropy, LeavesTheLogitsAloneWithoutABackward) {
  const at::Tensor logits = at::randn({1, 2, 3});
  const at::Tensor before = logits.clone();
  CrossEntropy(logits, at::zeros({1, 2}, at::kLong));
  EXPECT_TRUE(logits.equal(before));
}

}  // namespace
}  // namespace zerod::neox
