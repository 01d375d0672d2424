// Steps of one rank against a scalar reference and LibTorch: AdamW, clipping, accumulation,
// parameter groups; and what a gradient that isn't finite does on two ranks.

#include <cmath>

#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include "tests/support/ranks.h"
#include "tests/system/small_model.h"
#include "tests/system/values_reader.h"

namespace zerod {
namespace {

constexpr int kSteps = 8;
constexpr int64_t kRows = 8;
const std::vector<std::vector<int64_t>> kShapes = {
    {kHidden, kInput}, {kHidden}, {kOutput, kHidden}, {kOutput}};

StepOptions AdamW() {
  StepOptions options;
  options.learning_rate = 0.01;
  options.weight_decay = 0.1;
  options.gradient_divisor = 1;
  return options;
}

void AppendAll(ShardedModel& model, Content content, std::vector<double>& values) {
  for (const std::string& name : model.tensor_names()) {
    Append(values, model.ReadTensor(name, content));
  }
}

at::Tensor BatchLoss(ShardedSequential& model, int64_t batch) {
  return LossOf(model.Forward(InputBatch(batch, kRows)), TargetBatch(batch, kRows));
}

/// Per step: gradients, norm, parameters, both moments.
std::vector<double> RecordSteps(const StepOptions& step_options) {
  const Daemons daemons({1});
  return RunRanksOrThrow(daemons, [&](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedSequential model(*session, {});
    AddSmallModel(model);
    std::vector<double> values;
    for (int step = 0; step < kSteps; ++step) {
      BatchLoss(model, step).backward();
      AppendAll(model, Content::kGradient, values);
      values.push_back(model.Step(step_options).grad_norm);
      AppendAll(model, Content::kParameter, values);
      AppendAll(model, Content::kExpAvg, values);
      AppendAll(model, Content::kExpAvgSq, values);
    }
    session->Detach(true);
    return values;
  })[0];
}

struct ScalarModel {
  std::vector<float> parameter;
  std::vector<float> exp_avg;
  std::vector<float> exp_avg_sq;
};

/// The small model as one array of elements.
ScalarModel InitialScalars() {
  ScalarModel model;
  for (double value : Values(PlainModel().Parameters())) {
    model.parameter.push_back(static_cast<float>(value));
  }
  model.exp_avg.resize(model.parameter.size());
  model.exp_avg_sq.resize(model.parameter.size());
  return model;
}

/// The element function of AdamW, one element at a time; `count` is 1 in the first step.
void UpdateScalars(ScalarModel& model, const std::vector<float>& raw_gradient, int count,
                   const StepOptions& options, double gradient_factor) {
  auto rounded = [](double value) { return static_cast<float>(value); };
  const double correction1 = 1 - std::pow(options.beta1, count);
  const double correction2 = 1 - std::pow(options.beta2, count);
  for (size_t i = 0; i < raw_gradient.size(); ++i) {
    const float g = raw_gradient[i] * rounded(gradient_factor);
    float& m = model.exp_avg[i];
    float& v = model.exp_avg_sq[i];
    float& p = model.parameter[i];
    m = std::fma(g, rounded(1 - options.beta1), m * rounded(options.beta1));
    v = std::fma(g * g, rounded(1 - options.beta2), v * rounded(options.beta2));
    const float denominator =
        std::fma(std::sqrt(v), rounded(1 / std::sqrt(correction2)), rounded(options.eps));
    p = std::fma(m / denominator, rounded(-options.learning_rate / correction1),
                 p * rounded(1 - options.learning_rate * options.weight_decay));
  }
}

class ScalarReferenceTest : public ::testing::TestWithParam<std::pair<double, double>> {};

TEST_P(ScalarReferenceTest, AdamWEqualsTheElementFunctionBitForBit) {
  const auto [divisor, max_norm] = GetParam();
  StepOptions options = AdamW();
  options.gradient_divisor = divisor;
  options.max_grad_norm = max_norm;
  ValueReader recorded(RecordSteps(options));
  ScalarModel model = InitialScalars();
  const size_t numel = model.parameter.size();
  bool clipped = false;
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<float> gradient = recorded.NextFloats(numel);
    double sum_squares = 0;
    for (float value : gradient) sum_squares += static_cast<double>(value) * value;
    const double norm = recorded.Next();
    EXPECT_NEAR(norm, std::sqrt(sum_squares) / divisor, 1e-12 * norm);
    const double clip = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
    clipped = clipped || clip < 1;
    UpdateScalars(model, gradient, step + 1, options, 1.0 / divisor * clip);
    ASSERT_EQ(recorded.NextFloats(numel), model.parameter) << "step " << step;
    ASSERT_EQ(recorded.NextFloats(numel), model.exp_avg) << "step " << step;
    ASSERT_EQ(recorded.NextFloats(numel), model.exp_avg_sq) << "step " << step;
  }
  EXPECT_EQ(clipped, max_norm > 0);
}

INSTANTIATE_TEST_SUITE_P(DivisorAndClip, ScalarReferenceTest,
                         ::testing::Values(std::pair(1.0, 0.0), std::pair(3.0, 0.0),
                                           std::pair(1.0, 0.05)));

TEST(LibTorchOptimizerTest, AdamWFedTheRecordedGradientsAgrees) {
  ValueReader recorded(RecordSteps(AdamW()));
  PlainModel plain;
  torch::optim::AdamW optimizer(
      plain.Parameters(),
      torch::optim::AdamWOptions(0.01).betas({0.9, 0.95}).eps(1e-8).weight_decay(0.1));
  for (int step = 0; step < kSteps; ++step) {
    for (const at::Tensor& parameter : plain.Parameters()) {
      parameter.mutable_grad() = recorded.Next(parameter.sizes()).to(at::kFloat);
    }
    optimizer.step();
    recorded.Next();  // the norm
    for (const at::Tensor& parameter : plain.Parameters()) {
      EXPECT_LE(RelativeL2(recorded.Next(parameter.sizes()), parameter), 1e-6) << "step " << step;
    }
    for (int moment = 0; moment < 2; ++moment) {
      for (const auto& shape : kShapes) recorded.Next(shape);
    }
  }
  EXPECT_TRUE(recorded.AtEnd());
}

TEST(AccumulationTest, FourMicroBatchesGiveTheirMeanBitForBit) {
  constexpr int kMicroBatches = 4;
  const Daemons daemons({1});
  const auto sharded = RunRanksOrThrow(daemons, [](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedSequential model(*session, {});
    AddSmallModel(model);
    std::vector<double> values;
    StepOptions step_options = AdamW();
    step_options.optimizer = OptimizerKind::kSgd;
    step_options.weight_decay = 0;
    step_options.gradient_divisor = 0;  // the mean over micro-batches
    for (int step = 0; step < 3; ++step) {
      for (int i = 0; i < kMicroBatches; ++i) BatchLoss(model, step * kMicroBatches + i).backward();
      AppendAll(model, Content::kGradient, values);
      model.Step(step_options);
      AppendAll(model, Content::kParameter, values);
    }
    session->Detach(true);
    return values;
  });

  PlainModel plain;
  std::vector<double> expected;
  for (int step = 0; step < 3; ++step) {
    for (const at::Tensor& parameter : plain.Parameters()) parameter.mutable_grad().reset();
    for (int i = 0; i < kMicroBatches; ++i) {
      const int64_t batch = step * kMicroBatches + i;
      LossOf(plain.Forward(InputBatch(batch, kRows)), TargetBatch(batch, kRows)).backward();
    }
    for (const at::Tensor& parameter : plain.Parameters()) Append(expected, parameter.grad());
    for (const at::Tensor& parameter : plain.Parameters()) {
      const c10::NoGradGuard no_grad;
      parameter.add_(parameter.grad() / kMicroBatches, -0.01);
      Append(expected, parameter);
    }
  }
  EXPECT_EQ(sharded[0], expected);
}

TEST(ClippingTest, StepsAgreeWithLibTorchsClippedOnes) {
  StepOptions options = AdamW();
  options.max_grad_norm = 0.05;
  ValueReader recorded(RecordSteps(options));
  PlainModel plain;
  torch::optim::AdamW optimizer(
      plain.Parameters(),
      torch::optim::AdamWOptions(0.01).betas({0.9, 0.95}).eps(1e-8).weight_decay(0.1));
  for (int step = 0; step < kSteps; ++step) {
    for (const at::Tensor& parameter : plain.Parameters()) {
      parameter.mutable_grad() = recorded.Next(parameter.sizes()).to(at::kFloat);
    }
    const double norm = torch::nn::utils::clip_grad_norm_(plain.Parameters(), 0.05);
    EXPECT_NEAR(recorded.Next(), norm, 1e-6 * norm);
    EXPECT_GT(norm, 0.05) << "nothing to clip";
    optimizer.step();
    for (const at::Tensor& parameter : plain.Parameters()) {
      EXPECT_LE(RelativeL2(recorded.Next(parameter.sizes()), parameter), 2e-6) << "step " << step;
    }
    for (int moment = 0; moment < 2; ++moment) {
      for (const auto& shape : kShapes) recorded.Next(shape);
    }
  }
}

/// "first.weight" is frozen, biases have twice the rate and no decay, "second.weight" half the
/// rate.
std::vector<double> TrainWithGroups() {
  const Daemons daemons({1});
  return RunRanksOrThrow(daemons, [](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedSequential model(*session,
                            {.groups = {{.pattern = "second", .lr_scale = 0.5f},
                                        {.pattern = "bias$", .lr_scale = 2.0f, .decay = false},
                                        {.pattern = "^first\\.weight$", .train = false}}});
    AddSmallModel(model);
    for (int step = 0; step < kSteps; ++step) {
      BatchLoss(model, step).backward();
      model.Step(AdamW());
    }
    std::vector<double> values;
    AppendAll(model, Content::kParameter, values);
    session->Detach(true);
    return values;
  })[0];
}

TEST(ParameterGroupTest, RatesDecayAndFreezingAgreeWithLibTorch) {
  ValueReader ours(TrainWithGroups());
  PlainModel plain;
  plain.first->weight.requires_grad_(false);
  auto group = [](std::vector<at::Tensor> tensors, double rate, double decay) {
    return torch::optim::OptimizerParamGroup(
        std::move(tensors),
        std::make_unique<torch::optim::AdamWOptions>(
            torch::optim::AdamWOptions(rate).betas({0.9, 0.95}).eps(1e-8).weight_decay(decay)));
  };
  torch::optim::AdamW optimizer(
      std::vector<torch::optim::OptimizerParamGroup>{
          group({plain.second->weight}, 0.005, 0.1),
          group({plain.first->bias, plain.second->bias}, 0.02, 0.0)},
      torch::optim::AdamWOptions(0.01));
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    LossOf(plain.Forward(InputBatch(step, kRows)), TargetBatch(step, kRows)).backward();
    optimizer.step();
  }
  const std::vector<at::Tensor> theirs = plain.Parameters();
  EXPECT_EQ(RelativeL2(ours.Next(kShapes[0]), theirs[0]), 0) << "the frozen weight moved";
  for (size_t i = 1; i < theirs.size(); ++i) {
    EXPECT_LE(RelativeL2(ours.Next(kShapes[i]), theirs[i]), 2e-6) << "tensor " << i;
  }
}

/// Three steps and, if `poisoned`, between the first and the second another whose loss is NaN on
/// rank 1 alone. Returns whether that one was skipped and left no gradient, then all state after it
/// (or after the first) and at the end.
std::vector<double> TrainAroundNan(const SessionOptions& options, bool poisoned) {
  const auto session = Session::Connect(options);
  ShardedSequential model(*session, {});
  AddSmallModel(model);
  auto append_state = [&](std::vector<double>& values) {
    for (Content content : {Content::kParameter, Content::kExpAvg, Content::kExpAvgSq}) {
      AppendAll(model, content, values);
    }
  };
  std::vector<double> values{poisoned ? 0.0 : 1.0};
  for (int step = 0; step < 3; ++step) {
    BatchLoss(model, 2 * step + options.rank).backward();
    model.Step(AdamW());
    if (step > 0) continue;
    if (poisoned) {
      const double factor = options.rank == 1 ? std::nan("") : 1.0;
      (BatchLoss(model, 0) * factor).backward();
      const StepResult result = model.Step(AdamW());
      values[0] = result.skipped && std::isnan(result.grad_norm) && result.step == 2;
      std::vector<double> gradients;
      AppendAll(model, Content::kGradient, gradients);
      for (double gradient : gradients) values[0] *= gradient == 0;
    }
    append_state(values);
  }
  append_state(values);
  session->Detach(true);
  return values;
}

TEST(SkippedStepTest, NanOnOneRankIsSkippedOnAllAndTheNextStepIsFine) {
  for (const std::vector<int>& ranks : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    const Daemons daemons(ranks);
    auto train = [&](bool poisoned) {
      return RunRanksOrThrow(daemons, [poisoned](const SessionOptions& options) {
        return TrainAroundNan(options, poisoned);
      });
    };
    const auto clean = train(false);
    const auto poisoned = train(true);
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(poisoned[rank][0], 1) << "rank " << rank << " didn't skip";
      EXPECT_EQ(poisoned[rank], clean[rank]) << "rank " << rank;
    }
    for (size_t node = 0; node < ranks.size(); ++node) {
      EXPECT_NE(daemons.log(static_cast<int>(node)).find("step 2 is skipped on all ranks"),
                std::string::npos);
    }
  }
}

}  // namespace
}  // namespace zerod
