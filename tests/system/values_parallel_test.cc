// A small GPT-NeoX model on several ranks against one process that has the whole batch.

#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "tests/support/ranks.h"
#include "tests/system/small_model.h"
#include "tests/system/values_neox.h"
#include "tests/system/values_reader.h"
#include "tests/worker/neox/plain_model.h"
#include "worker/neox/loss.h"

namespace zerod {
namespace {

constexpr int64_t kBatch = 24;  // samples of all ranks together
constexpr int64_t kSeq = 12;
constexpr int kSteps = 20;
constexpr uint64_t kSeed = 5;

neox::Config SmallConfig() {
  return neox::ParseConfig(R"({"model_type": "gpt_neox", "vocab_size": 61, "hidden_size": 32,
      "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
      "max_position_embeddings": 64, "hidden_act": "gelu", "rotary_pct": 0.25,
      "rotary_emb_base": 10000, "layer_norm_eps": 1e-5, "initializer_range": 0.1,
      "use_parallel_residual": true, "tie_word_embeddings": false})",
                           "the test");
}

struct Course {
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  int64_t micro_batches = 1;
};

StepOptions OptionsOf(OptimizerKind optimizer) {
  StepOptions options;
  options.optimizer = optimizer;
  options.learning_rate = optimizer == OptimizerKind::kSgd ? 0.1 : 1e-3;
  options.weight_decay = optimizer == OptimizerKind::kSgd ? 0.0 : 0.1;
  options.max_grad_norm = optimizer == OptimizerKind::kSgd ? 0.0 : 1.0;
  return options;
}

/// Rows `first` to `first + rows` of a step's batch, [rows, kSeq + 1].
at::Tensor Tokens(int64_t step, int64_t first, int64_t rows) {
  at::Tensor tokens = at::empty({rows, kSeq + 1}, at::kLong);
  for (int64_t i = 0; i < tokens.numel(); ++i) {
    const int64_t index = (step * kBatch + first) * (kSeq + 1) + i;
    tokens.data_ptr<int64_t>()[i] = (index * index * 7 + index * 13 + index / 5) % 61;
  }
  return tokens;
}

at::Tensor LossOn(const std::function<at::Tensor(const at::Tensor&)>& forward,
                  const at::Tensor& tokens) {
  const at::Tensor logits = forward(tokens.narrow(1, 0, kSeq).contiguous());
  return neox::CrossEntropy(logits, tokens.narrow(1, 1, kSeq).contiguous());
}

/// Loss and norm of every step, then all tensors.
std::vector<double> TrainRank(const SessionOptions& options, const Course& course) {
  const auto session = Session::Connect(options);
  ShardedSequential model(*session, {});
  AddNeox(model, SmallConfig(), [](neox::Layer& layer) { layer.Initialize(kSeed); });
  const int64_t rows = kBatch / (options.world_size * course.micro_batches);
  std::vector<double> values;
  for (int step = 0; step < kSteps; ++step) {
    double loss_sum = 0;
    for (int64_t micro = 0; micro < course.micro_batches; ++micro) {
      const int64_t first = (options.rank * course.micro_batches + micro) * rows;
      const at::Tensor loss = LossOn([&](const at::Tensor& input) { return model.Forward(input); },
                                     Tokens(step, first, rows));
      loss.backward();
      loss_sum += loss.item<double>();
    }
    StepOptions step_options = OptionsOf(course.optimizer);
    step_options.values = {loss_sum};
    const StepResult result = model.Step(step_options);
    values.push_back(result.values[0] / (options.world_size * course.micro_batches));
    values.push_back(result.grad_norm);
  }
  for (const std::string& name : model.tensor_names()) Append(values, model.ReadTensor(name));
  session->Detach(true);
  return values;
}

std::vector<double> TrainPlain(OptimizerKind kind) {
  neox::PlainModel model(SmallConfig());
  model.Initialize(kSeed);
  const StepOptions options = OptionsOf(kind);
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (kind == OptimizerKind::kSgd) {
    optimizer = std::make_unique<torch::optim::SGD>(
        model.Parameters(), torch::optim::SGDOptions(options.learning_rate));
  } else {
    optimizer = std::make_unique<torch::optim::AdamW>(
        model.Parameters(), torch::optim::AdamWOptions(options.learning_rate)
                                .betas({options.beta1, options.beta2})
                                .eps(options.eps)
                                .weight_decay(options.weight_decay));
  }
  std::vector<double> values;
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    const at::Tensor loss = LossOn([&](const at::Tensor& input) { return model.Forward(input); },
                                   Tokens(step, 0, kBatch));
    loss.backward();
    const double max_norm = options.max_grad_norm > 0 ? options.max_grad_norm : 1e30;
    values.push_back(loss.item<double>());
    values.push_back(torch::nn::utils::clip_grad_norm_(model.Parameters(), max_norm));
    optimizer->step();
  }
  for (const at::Tensor& parameter : model.Parameters()) Append(values, parameter);
  return values;
}

/// The gradient of the key part of this bias is zero where keys aren't rotated, but for rounding
/// noise that AdamW makes a step of: that part is left out.
void LeaveOutNoise(const neox::TensorSpec& spec, at::Tensor& tensor) {
  if (!spec.name.ends_with("query_key_value.bias")) return;
  const neox::Config config = SmallConfig();
  const int64_t rotated = 2 * config.rotary_pairs();
  tensor.view({config.num_attention_heads, 3, config.head_size()})
      .select(1, 1)
      .narrow(1, rotated, config.head_size() - rotated)
      .zero_();
}

void ExpectAgree(const std::vector<double>& actual, OptimizerKind kind) {
  static std::map<OptimizerKind, std::vector<double>> plain;
  if (!plain.contains(kind)) plain[kind] = TrainPlain(kind);
  ASSERT_EQ(actual.size(), plain[kind].size());
  ValueReader ours(actual);
  ValueReader theirs(plain[kind]);
  for (int step = 0; step < kSteps; ++step) {
    const double loss = theirs.Next();
    EXPECT_NEAR(ours.Next(), loss, 1e-5 * loss) << "loss of step " << step;
    const double norm = theirs.Next();
    EXPECT_NEAR(ours.Next(), norm, 5e-5 * norm) << "norm of step " << step;
  }
  double worst = 0;
  for (const neox::TensorSpec& spec : neox::ModelTensors(SmallConfig())) {
    at::Tensor left = ours.Next(spec.shape);
    at::Tensor right = theirs.Next(spec.shape);
    LeaveOutNoise(spec, left);
    LeaveOutNoise(spec, right);
    const double off = RelativeL2(left, right);
    worst = std::max(worst, off);
    EXPECT_LE(off, kind == OptimizerKind::kSgd ? 1e-5 : 3e-4) << spec.name;
  }
  ::testing::Test::RecordProperty(kind == OptimizerKind::kSgd ? "sgd_off" : "adamw_off",
                                  Concat(worst));
}

struct Placement {
  std::string name;
  std::vector<int> ranks;
  int64_t micro_batches = 1;
};

class DataParallelTest : public ::testing::TestWithParam<Placement> {};

TEST_P(DataParallelTest, TwentyStepsAgreeWithOneProcessOnTheWholeBatch) {
  const Daemons daemons(GetParam().ranks);
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdamW}) {
    const Course course{kind, GetParam().micro_batches};
    const auto values = RunRanksOrThrow(
        daemons, [&](const SessionOptions& options) { return TrainRank(options, course); });
    ExpectAgree(values[0], kind);
    for (const auto& other : values) EXPECT_EQ(other, values[0]) << "ranks disagree";
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, DataParallelTest,
                         ::testing::Values(Placement{"OneRank", {1}}, Placement{"TwoRanks", {2}},
                                           Placement{"ThreeRanks", {3}},
                                           Placement{"FourRanksInMicroBatches", {4}, 2},
                                           Placement{"OneAndOne", {1, 1}},
                                           Placement{"OneAndOneInMicroBatches", {1, 1}, 3},
                                           Placement{"TwoAndOne", {2, 1}},
                                           Placement{"OneAndTwoInMicroBatches", {1, 2}, 2},
                                           Placement{"TwoAndTwo", {2, 2}}),
                         [](const auto& placement) { return placement.param.name; });

TEST(RepeatedRunTest, TwoRunsWithTheSamePlacementAreBitEqual) {
  for (const std::vector<int>& ranks : {std::vector<int>{2, 1}, std::vector<int>{2}}) {
    std::vector<std::vector<double>> runs;
    for (int run = 0; run < 2; ++run) {
      const Daemons daemons(ranks);
      const auto values = RunRanksOrThrow(daemons, [](const SessionOptions& options) {
        return TrainRank(options, {OptimizerKind::kAdamW, 2});
      });
      runs.push_back(values[0]);
    }
    EXPECT_EQ(runs[0], runs[1]);
  }
}

}  // namespace
}  // namespace zerod
