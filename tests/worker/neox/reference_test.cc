// Compares the model with what an independent implementation computed (tests/data/neox/README.md).

#include <cmath>
#include <fstream>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include "tests/worker/neox/plain_model.h"
#include "worker/neox/data.h"
#include "worker/neox/loss.h"

namespace zerod::neox {
namespace {

using nlohmann::json;

class Reference : public testing::TestWithParam<std::string> {
 protected:
  Reference() : model_(config_) {
    at::set_num_threads(1);
    std::ifstream file(folder_ + "/reference.json");
    expected_ = json::parse(file);
    model_.Load(Checkpoint(folder_ + "/model", config_));
    source_.emplace(DataOptions{.path = folder_ + "/tokens.bin",
                                .token_bytes = 2,
                                .vocab_size = config_.vocab_size,
                                .seq = expected_["seq"]});
  }

  TokenBatch Batch(int64_t step) const {
    const BatchShape shape{.batch = expected_["batch"]};
    return source_->Train(FirstSample(shape, step, 0), shape.batch);
  }

  const std::string folder_ = std::string(ZEROD_NEOX_DATA_DIR) + "/" + GetParam();
  const Config config_ = ReadConfig(folder_ + "/model/config.json");
  PlainModel model_;
  json expected_;
  std::optional<TokenSource> source_;
};

/// |actual − expected| as a part of |expected|.
void ExpectClose(double actual, double expected, double relative, const std::string& what) {
  EXPECT_NEAR(actual, expected, relative * std::abs(expected)) << what;
}

TEST_P(Reference, LogitsAndLossAgree) {
  const TokenBatch batch = Batch(0);
  const at::Tensor logits = model_.Forward(batch.input);
  int compared = 0;
  for (const auto& item : expected_["logits"].items()) {
    const at::Tensor row = logits[0][std::stoi(item.key())];
    for (int64_t v = 0; v < config_.vocab_size; ++v, ++compared) {
      EXPECT_NEAR(row[v].item<float>(), item.value()[static_cast<size_t>(v)].get<float>(), 2e-5);
    }
  }
  EXPECT_EQ(compared, 3 * config_.vocab_size);
  const at::Tensor loss = CrossEntropy(logits, batch.target);
  EXPECT_NEAR(loss.item<double>(), expected_["loss"].get<double>(), 2e-5);
}

TEST_P(Reference, GradientNormsAgree) {
  const TokenBatch batch = Batch(0);
  CrossEntropy(model_.Forward(batch.input), batch.target).backward();
  const auto parameters = model_.NamedParameters();
  EXPECT_EQ(parameters.size(), expected_["grad_norms"].size());
  for (const auto& [name, parameter] : parameters) {
    ExpectClose(parameter.grad().norm().item<double>(), expected_["grad_norms"].at(name), 1e-4,
                name);
  }
}

TEST_P(Reference, TrainingAgrees) {
  torch::optim::AdamW optimizer(
      model_.Parameters(),
      torch::optim::AdamWOptions(1e-3).betas({0.9, 0.95}).eps(1e-8).weight_decay(0.1));
  const json& steps = expected_["train"];
  ASSERT_EQ(steps.size(), 8U);
  for (size_t step = 0; step < steps.size(); ++step) {
    const TokenBatch batch = Batch(static_cast<int64_t>(step));
    optimizer.zero_grad();
    const at::Tensor loss = CrossEntropy(model_.Forward(batch.input), batch.target);
    loss.backward();
    const double norm = torch::nn::utils::clip_grad_norm_(model_.Parameters(), 1.0);
    optimizer.step();
    EXPECT_NEAR(loss.item<double>(), steps[step]["loss"].get<double>(), 5e-5) << "step " << step;
    ExpectClose(norm, steps[step]["grad_norm"], 1e-4, "norm of step " + std::to_string(step));
  }
  for (const auto& [name, parameter] : model_.NamedParameters()) {
    const json& final = expected_["final"].at(name);
    const at::Tensor values = parameter.detach().to(at::kDouble).flatten();
    // The key part of this bias has in truth no gradient where keys aren't rotated; AdamW moves it
    // by rounding noise.
    const bool noisy = name.ends_with("query_key_value.bias");
    ExpectClose(values.square().sum().item<double>(), final["sum_squares"], noisy ? 2e-3 : 1e-4,
                name);
    for (size_t i = 0; i < final["first"].size() && !noisy; ++i) {
      EXPECT_NEAR(values[static_cast<int64_t>(i)].item<double>(), final["first"][i].get<double>(),
                  1e-4)
          << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, Reference,
                         testing::Values("parallel", "sequential", "tied_float16", "bfloat16_fast",
                                         "tied_bfloat16_quick", "float16_relu", "silu_wide",
                                         "tied_tanh"),
                         [](const auto& folder) { return folder.param; });

}  // namespace
}  // namespace zerod::neox
