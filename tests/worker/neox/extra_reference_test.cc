// Bfloat16 and decoding with a cache against what an independent implementation computed
// (tests/data/neox/README.md).

#include <cmath>
#include <fstream>

#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/worker/neox/plain_model.h"
#include "worker/neox/data.h"
#include "worker/neox/loss.h"

namespace zerod::neox {
namespace {

using nlohmann::json;

json JsonFrom(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file);
}

class ExtraReference : public testing::TestWithParam<std::string> {
 protected:
  ExtraReference() { at::set_num_threads(1); }

  PlainModel Loaded(DType dtype) const {
    PlainModel model(config_, dtype);
    model.Load(Checkpoint(folder_ + "/model", config_));
    return model;
  }

  const std::string folder_ = std::string(ZEROD_NEOX_DATA_DIR) + "/" + GetParam();
  const Config config_ = ReadConfig(folder_ + "/model/config.json");
  const json reference_ = JsonFrom(folder_ + "/reference.json");
  const json extra_ = JsonFrom(folder_ + "/extra.json");
};

TEST_P(ExtraReference, Bfloat16Agrees) {
  PlainModel model = Loaded(DType::kBFloat16);
  const TokenSource source({.path = folder_ + "/tokens.bin",
                            .token_bytes = 2,
                            .vocab_size = config_.vocab_size,
                            .seq = reference_["seq"]});
  const TokenBatch batch = source.Train(0, reference_["batch"]);
  const at::Tensor logits = model.Forward(batch.input);
  const json& expected = extra_["bfloat16"];
  double worst = 0;
  for (const auto& item : expected["logits"].items()) {
    const at::Tensor row = logits[0][std::stoi(item.key())];
    for (int64_t v = 0; v < config_.vocab_size; ++v) {
      const double value = item.value()[static_cast<size_t>(v)];
      worst =
          std::max(worst, std::abs(row[v].item<double>() - value) / std::max(1.0, std::abs(value)));
    }
  }
  EXPECT_LT(worst, 0.025);  // three units in the last place
  const at::Tensor loss = CrossEntropy(logits, batch.target);
  EXPECT_NEAR(loss.item<double>(), expected["loss"].get<double>(), 1e-3);
  loss.backward();
  for (const auto& [name, parameter] : model.NamedParameters()) {
    const double norm = parameter.grad().to(at::kDouble).norm().item<double>();
    const double other = expected["grad_norms"].at(name);
    EXPECT_NEAR(norm, other, 0.01 * other) << name;
  }
}

TEST_P(ExtraReference, GreedyTokensAgree) {
  PlainModel model = Loaded(DType::kFloat32);
  const json& expected = extra_["greedy"];
  const c10::NoGradGuard no_grad;
  KeyValueCache cache(config_, config_.max_position_embeddings);
  std::vector<int64_t> fresh = expected["prompt"];
  std::vector<int64_t> all = fresh;
  std::vector<int64_t> made;
  while (made.size() < expected["tokens"].size()) {
    model.forward().BeginDecoding(cache);
    const at::Tensor logits = model.Forward(at::tensor(fresh).unsqueeze(0));
    ASSERT_EQ(logits.sizes(), (std::vector<int64_t>{1, 1, config_.vocab_size}));
    cache.Advance(static_cast<int64_t>(fresh.size()));
    model.forward().BeginEvaluation();
    const at::Tensor whole = model.Forward(at::tensor(all).unsqueeze(0));
    EXPECT_LT((logits[0][0] - whole[0][-1]).abs().max().item<double>(), 2e-5);
    fresh = {logits.argmax().item<int64_t>()};
    made.push_back(fresh[0]);
    all.push_back(fresh[0]);
  }
  EXPECT_EQ(json(made), expected["tokens"]);
}

INSTANTIATE_TEST_SUITE_P(Folders, ExtraReference,
                         testing::Values("parallel", "sequential", "tied_bfloat16_quick",
                                         "float16_relu", "silu_wide", "tied_tanh"),
                         [](const auto& folder) { return folder.param; });

}  // namespace
}  // namespace zerod::neox
