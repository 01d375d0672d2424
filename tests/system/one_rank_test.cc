// One rank on one daemon against plain LibTorch, bit for bit.

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "tests/support/ranks.h"
#include "tests/system/small_model.h"

namespace zerod {
namespace {

constexpr int kSteps = 5;
constexpr int64_t kRows = 8;

StepOptions Sgd() {
  StepOptions options;
  options.optimizer = OptimizerKind::kSgd;
  options.learning_rate = 0.1;
  options.gradient_divisor = 1;
  return options;
}

TEST(OneRankTest, LossesGradientsAndSgdParametersEqualPlainLibTorchBitForBit) {
  const Daemons daemons({1});
  const auto sharded = RunRanksOrThrow(daemons, [](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedSequential model(*session, {});
    AddSmallModel(model);
    std::vector<double> values;
    for (int step = 0; step < kSteps; ++step) {
      const at::Tensor loss =
          LossOf(model.Forward(InputBatch(step, kRows)), TargetBatch(step, kRows));
      loss.backward();
      Append(values, loss);
      for (const std::string& name : model.tensor_names()) {
        Append(values, model.ReadTensor(name, Content::kGradient));
      }
      model.Step(Sgd());
      for (const std::string& name : model.tensor_names()) Append(values, model.ReadTensor(name));
    }
    session->Detach(true);
    return values;
  });

  PlainModel plain;
  torch::optim::SGD optimizer(plain.Parameters(), torch::optim::SGDOptions(0.1));
  std::vector<double> expected;
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor loss =
        LossOf(plain.Forward(InputBatch(step, kRows)), TargetBatch(step, kRows));
    optimizer.zero_grad();
    loss.backward();
    Append(expected, loss);
    for (const at::Tensor& parameter : plain.Parameters()) Append(expected, parameter.grad());
    optimizer.step();
    for (const at::Tensor& parameter : plain.Parameters()) Append(expected, parameter);
  }
  ASSERT_EQ(sharded[0].size(), expected.size());
  EXPECT_EQ(sharded[0], expected);
}

}  // namespace
}  // namespace zerod
