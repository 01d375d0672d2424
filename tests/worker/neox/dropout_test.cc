#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "tests/worker/neox/plain_model.h"
#include "worker/autograd/checkpoint.h"
#include "worker/neox/layers.h"

namespace zerod::neox {
namespace {

Config Small() {
  Config config;
  config.vocab_size = 50;
  config.hidden_size = 64;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 2;
  config.intermediate_size = 96;
  return config;
}

Config WithDropout(double attention, double hidden) {
  Config config = Small();
  config.attention_dropout = attention;
  config.hidden_dropout = hidden;
  return config;
}

/// Nobody listens.
class NoEvents : public LayerEvents {
 private:
  void OnBackwardPlan(const std::vector<size_t>& /*layers*/) override {}
  void OnBackwardBegin(size_t /*layer*/) override {}
  void OnBackwardEnd(size_t /*layer*/, bool /*more_calls*/) override {}
  void OnGradient(size_t /*layer*/, size_t /*parameter*/, const at::Tensor& /*g*/) override {}
  void OnGradientsComplete(size_t /*layer*/) override {}
  void OnBackwardFinished() override {}
  void OnBackwardFailed(const BackwardFailure& /*failure*/) noexcept override {}
};

LayerContext ContextOf(const Config& config, const std::shared_ptr<ForwardContext>& forward) {
  return MakeLayerContext(config, DType::kFloat32, forward);
}

TEST(Dropout, OfTheEmbeddingDropsItsPartAndScalesTheRest) {
  const auto forward = std::make_shared<ForwardContext>();
  const Config config = WithDropout(0, 0.3);
  Embedding embedding(config, ContextOf(config, forward));
  {
    const c10::NoGradGuard no_grad;
    embedding.weight().fill_(2);
  }
  const at::Tensor tokens = at::randint(50, {8, 100}, at::kLong);
  forward->BeginTraining({});
  const at::Tensor output = embedding.forward(tokens);
  const at::Tensor dropped = output.eq(0);
  EXPECT_NEAR(dropped.to(at::kFloat).mean().item<double>(), 0.3, 0.01);  // of 51200
  EXPECT_TRUE(output.eq(static_cast<float>(2 / 0.7)).logical_or_(dropped).all().item<bool>());
}

TEST(Dropout, IsOffOutsideOfTraining) {
  const auto forward = std::make_shared<ForwardContext>();
  const Config config = WithDropout(0.5, 0.5);
  Block with(config, 0, ContextOf(config, forward));
  Block without(Small(), 0);
  with.Initialize(1);
  without.Initialize(1);
  const at::Tensor input = at::randn({2, 5, 64});
  EXPECT_TRUE(with.forward(input).equal(without.forward(input)));
  forward->BeginTraining({});
  EXPECT_FALSE(with.forward(input).equal(without.forward(input)));
  forward->BeginEvaluation();
  EXPECT_TRUE(with.forward(input).equal(without.forward(input)));
}

TEST(Dropout, DependsOnSeedStepMicroBatchAndRankOnly) {
  PlainModel model(WithDropout(0.2, 0.1));
  model.Initialize(3);
  const at::Tensor tokens = at::randint(50, {2, 16}, at::kLong);
  const auto run = [&](const TrainingForward& forward) {
    model.forward().BeginTraining(forward);
    return model.Forward(tokens).detach();
  };
  const TrainingForward base{.seed = 5, .step = 7, .micro_batch = 1, .dp_index = 2};
  const at::Tensor first = run(base);
  for (TrainingForward other :
       {TrainingForward{6, 7, 1, 2}, TrainingForward{5, 8, 1, 2}, TrainingForward{5, 7, 0, 2},
        TrainingForward{5, 7, 1, 3}, TrainingForward{5, 7, 2, 1}}) {
    EXPECT_FALSE(run(other).equal(first));
  }
  EXPECT_TRUE(run(base).equal(first));
}

/// A block whose MLP gives 0 and whose attention gives 1 for every element: its output is the
/// mask after attention. With hidden size 64 and 4 x 200 rows there are 51200 elements.
TEST(Dropout, FollowsTheAttentionOutput) {
  const auto forward = std::make_shared<ForwardContext>();
  Config config = WithDropout(0, 0.25);
  config.initializer_range = 0;
  Block block(config, 0, ContextOf(config, forward));
  block.Initialize(0);
  {
    const c10::NoGradGuard no_grad;
    block.parameter("attention.dense.bias").fill_(1);
  }
  const at::Tensor input = at::zeros({4, 200, 64});
  forward->BeginTraining({});
  const at::Tensor output = block.forward(input);
  EXPECT_NEAR(output.eq(0).to(at::kFloat).mean().item<double>(), 0.25, 0.01);
  EXPECT_NEAR(output.max().item<double>(), 1 / 0.75, 1e-6);
}

/// Values of ones and equal scores: without dropout attention gives 1 everywhere; with it position
/// t gives the sum of t + 1 kept probabilities 1 / ((t + 1) (1 - p)).
TEST(Dropout, FallsOnAttentionProbabilities) {
  const auto forward = std::make_shared<ForwardContext>();
  Config config = WithDropout(0.5, 0);
  config.initializer_range = 0;
  Block block(config, 0, ContextOf(config, forward));
  block.Initialize(0);
  {
    const c10::NoGradGuard no_grad;
    // Heads of 32: query, key, value of head 0, then of head 1.
    block.parameter("attention.query_key_value.bias").view({2, 3, 32}).select(1, 2).fill_(1);
    block.parameter("attention.dense.weight").fill_diagonal_(1);
  }
  forward->BeginTraining({});
  const at::Tensor output = block.forward(at::zeros({400, 3, 64}));
  const at::Tensor head = output.select(2, 0);  // one draw per sample, position and key
  EXPECT_TRUE(head.select(1, 0).eq(0).logical_or_(head.select(1, 0).eq(2)).all().item<bool>());
  EXPECT_NEAR(head.select(1, 0).mean().item<double>(), 1, 0.2);  // deviation 0.05
  EXPECT_NEAR(head.select(1, 2).mean().item<double>(), 1, 0.12);
  EXPECT_NEAR(head.select(1, 2).max().item<double>(), 2, 1e-5);
  EXPECT_NEAR(head.select(1, 2).sub(2.0 / 3).abs().min().item<double>(), 0, 1e-5);
}

TEST(Dropout, IsRepeatedByARecomputation) {
  const auto forward = std::make_shared<ForwardContext>();
  const Config config = WithDropout(0.3, 0.2);
  Block block(config, 0, ContextOf(config, forward));
  block.Initialize(2);
  const at::Tensor input = at::randn({2, 6, 64});
  const at::Tensor weights = at::randn({2, 6, 64});
  const at::Tensor& parameter = block.parameter("mlp.dense_4h_to_h.weight");
  forward->BeginTraining({.step = 4});
  const at::Tensor plain = block.forward(input);
  plain.mul(weights).sum().backward();
  const at::Tensor gradient = parameter.grad().clone();
  block.zero_grad();
  forward->BeginTraining({.step = 4});
  NoEvents ignored;
  const BackwardTracker tracker(ignored);
  const std::vector<at::Tensor> again = zerod::Checkpoint(
      tracker,
      [&](const std::vector<at::Tensor>& inputs) {
        return std::vector<at::Tensor>{block.forward(inputs[0])};
      },
      {input}, block.parameters());
  at::randn({100}).sum().item<double>();  // others may draw meanwhile
  again[0].mul(weights).sum().backward();
  EXPECT_TRUE(again[0].equal(plain));
  EXPECT_TRUE(parameter.grad().equal(gradient));
}

}  // namespace
}  // namespace zerod::neox
