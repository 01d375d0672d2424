// GPT-NeoX through the daemons against what an independent implementation computed
// (tests/data/neox/README.md).

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/ranks.h"
#include "tests/system/small_model.h"
#include "tests/system/values_neox.h"
#include "tests/system/values_reader.h"
#include "worker/neox/data.h"
#include "worker/neox/loss.h"

namespace zerod {
namespace {

using nlohmann::json;

constexpr int kSteps = 8;

struct Case {
  std::string folder;
  std::string placement;
  std::vector<int> ranks;
};

class ReferenceTest : public ::testing::TestWithParam<Case> {
 protected:
  ReferenceTest() {
    std::ifstream file(folder_ + "/reference.json");
    expected_ = json::parse(file);
  }

  std::vector<double> TrainRank(const SessionOptions& options) const;

  const std::string folder_ = std::string(ZEROD_NEOX_DATA_DIR) + "/" + GetParam().folder;
  const neox::Config config_ = neox::ReadConfig(folder_ + "/model/config.json");
  json expected_;
};

StepOptions ReferenceStep(double loss) {
  StepOptions options;
  options.learning_rate = 1e-3;
  options.weight_decay = 0.1;
  options.max_grad_norm = 1.0;
  options.values = {loss};
  return options;
}

/// The logits of this rank's first sample at the reference's positions, the gradients of the first
/// batch (mean over the batch), loss and norm of each step, all tensors.
std::vector<double> ReferenceTest::TrainRank(const SessionOptions& options) const {
  const auto session = Session::Connect(options);
  ShardedSequential model(*session, {});
  const neox::Checkpoint weights(folder_ + "/model/model.safetensors", config_);
  AddNeox(model, config_, [&](neox::Layer& layer) { layer.Load(weights); });
  const neox::TokenSource source({.path = folder_ + "/tokens.bin",
                                  .token_bytes = 2,
                                  .vocab_size = config_.vocab_size,
                                  .seq = expected_["seq"]});
  const neox::BatchShape shape{
      .batch = expected_["batch"], .dp_size = options.world_size, .dp_index = options.rank};
  std::vector<double> values;
  for (int step = 0; step < kSteps; ++step) {
    const auto batch = source.Train(neox::FirstSample(shape, step, 0), shape.micro_batch_size());
    const at::Tensor logits = model.Forward(batch.input);
    if (step == 0) {
      for (const auto& item : expected_["logits"].items()) {
        Append(values, logits[0][std::stoi(item.key())]);
      }
    }
    const at::Tensor loss = neox::CrossEntropy(logits, batch.target);
    loss.backward();
    for (const std::string& name : model.tensor_names()) {
      if (step > 0) break;
      Append(values, model.ReadTensor(name, Content::kGradient).div(options.world_size));
    }
    const StepResult result = model.Step(ReferenceStep(loss.item<double>()));
    values.push_back(result.values[0] / options.world_size);
    values.push_back(result.grad_norm);
  }
  for (const std::string& name : model.tensor_names()) Append(values, model.ReadTensor(name));
  session->Detach(true);
  return values;
}

/// |actual - expected| as a part of |expected|.
void ExpectClose(double actual, double expected, double relative, const std::string& what) {
  EXPECT_NEAR(actual, expected, relative * std::abs(expected)) << what;
}

TEST_P(ReferenceTest, LogitsGradientsAndEightStepsAgree) {
  const Daemons daemons(GetParam().ranks);
  const auto values = RunRanksOrThrow(
      daemons, [this](const SessionOptions& options) { return TrainRank(options); });
  ValueReader ours(values[0]);
  for (const auto& item : expected_["logits"].items()) {
    for (const json& logit : item.value()) {
      EXPECT_NEAR(ours.Next(), logit.get<double>(), 2e-5) << "position " << item.key();
    }
  }
  const auto tensors = neox::ModelTensors(config_);
  ASSERT_EQ(tensors.size(), expected_["grad_norms"].size());
  for (const auto& tensor : tensors) {
    ExpectClose(ours.Next(tensor.shape).norm().item<double>(),
                expected_["grad_norms"].at(tensor.name), 1e-4, "gradient of " + tensor.name);
  }
  for (int step = 0; step < kSteps; ++step) {
    const json& expected = expected_["train"].at(step);
    EXPECT_NEAR(ours.Next(), expected["loss"].get<double>(), 5e-5) << "step " << step;
    ExpectClose(ours.Next(), expected["grad_norm"], 1e-4, Concat("norm of step ", step));
  }
  for (const auto& tensor : tensors) {
    const json& final = expected_["final"].at(tensor.name);
    const at::Tensor ended = ours.Next(tensor.shape).flatten();
    // The key part of this bias has in truth no gradient where keys aren't rotated; AdamW moves it
    // by rounding noise.
    const bool noisy = tensor.name.ends_with("query_key_value.bias");
    ExpectClose(ended.square().sum().item<double>(), final["sum_squares"], noisy ? 2e-3 : 1e-4,
                tensor.name);
    for (size_t i = 0; i < final["first"].size() && !noisy; ++i) {
      EXPECT_NEAR(ended[static_cast<int64_t>(i)].item<double>(), final["first"][i].get<double>(),
                  1e-4)
          << tensor.name;
    }
  }
  EXPECT_TRUE(ours.AtEnd());
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* folder : {"parallel", "sequential", "tied_float16", "bfloat16_fast"}) {
    cases.push_back({folder, "OneRank", {1}});
    cases.push_back({folder, "OneAndOne", {1, 1}});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Folders, ReferenceTest, ::testing::ValuesIn(Cases()),
                         [](const auto& given) {
                           return given.param.folder + "_" + given.param.placement;
                         });

}  // namespace
}  // namespace zerod
