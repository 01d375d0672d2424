// bfloat16 parameters with float32 masters, beside float32 and frozen tensors in one layer, against
// plain LibTorch and a scalar AdamW.

#include <cmath>
#include <map>

#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/ranks.h"
#include "tests/system/mixed_layer.h"
#include "tests/system/small_model.h"
#include "tests/system/values_reader.h"
#include "worker/sharded/sharded_sequential.h"

namespace zerod {
namespace {

constexpr int64_t kIn = 61;
constexpr int64_t kMiddle = 97;  // 97 x 61 is more than two pages of bfloat16: no shard is empty
constexpr int64_t kOut = 5;
constexpr int64_t kRows = 4;
constexpr int kSteps = 4;

at::Tensor Input(int batch) { return Formula({kRows, kIn}, 100 + batch); }
at::Tensor Target(int batch) { return Formula({kRows, kOut}, 200 + batch); }

StepOptions AdamW() {
  StepOptions options;
  options.learning_rate = 0.003;  // small beside the parameters: without masters it would be lost
  options.weight_decay = 0.1;
  return options;
}

void AddMixedModel(ShardedSequential& model) {
  model.AddLayer("first", [] { return MixedLayer(kIn, kMiddle, 1); });
  model.AddLayer("second", [] { return MixedLayer(kMiddle, kOut, 5); });
}

/// Per step, and once before the first: loss, then of every tensor of every layer parameter and
/// master, and of every trainable one gradient and moments.
void AppendState(ShardedModel& model, bool gradients, std::vector<double>& values) {
  std::vector<Content> contents = {Content::kParameter, Content::kMaster};
  if (gradients) contents = {Content::kGradient};
  for (Content content : contents) {
    for (size_t layer = 0; layer < model.layer_count(); ++layer) {
      for (const at::Tensor& tensor : model.ReadLayer(layer, content)) {
        if (tensor.defined()) Append(values, tensor);
      }
    }
  }
}

std::vector<std::vector<double>> Train(const Daemons& daemons) {
  return RunRanksOrThrow(daemons, [](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedSequential model(*session, {});
    AddMixedModel(model);
    std::vector<double> values;
    AppendState(model, false, values);
    for (int step = 0; step < kSteps; ++step) {
      const int batch = 10 * step + options.rank;
      LossOf(model.Forward(Input(batch)), Target(batch)).backward();
      AppendState(model, true, values);
      model.Step(AdamW());
      AppendState(model, false, values);
    }
    session->Detach(true);
    return values;
  });
}

/// AdamW of one element; `count` is 1 in the first step.
void UpdateElement(float& master, float& exp_avg, float& exp_avg_sq, float gradient, int count) {
  const StepOptions options = AdamW();
  auto rounded = [](double value) { return static_cast<float>(value); };
  exp_avg = std::fma(gradient, rounded(1 - options.beta1), exp_avg * rounded(options.beta1));
  exp_avg_sq = std::fma(gradient * gradient, rounded(1 - options.beta2),
                        exp_avg_sq * rounded(options.beta2));
  const double correction1 = 1 - std::pow(options.beta1, count);
  const double correction2 = 1 - std::pow(options.beta2, count);
  const float denominator =
      std::fma(std::sqrt(exp_avg_sq), rounded(1 / std::sqrt(correction2)), rounded(options.eps));
  master = std::fma(exp_avg / denominator, rounded(-options.learning_rate / correction1),
                    master * rounded(1 - options.learning_rate * options.weight_decay));
}

/// One tensor of the reference: the module's copy is what its type can hold of the master.
struct ReferenceTensor {
  at::Tensor parameter;
  at::Tensor master;
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
  at::Tensor gradient;  // summed over the ranks
};

class Reference {
 public:
  Reference() {
    for (const MixedLayer& layer : {first_, second_}) {
      for (const at::Tensor& parameter : layer->parameters()) {
        const at::Tensor master = parameter.detach().to(at::kFloat, false, /*copy=*/true);
        tensors_.push_back({parameter, master, at::zeros_like(master), at::zeros_like(master), {}});
      }
    }
  }

  void Append(bool gradients, std::vector<double>& values) const {
    if (gradients) {
      for (const ReferenceTensor& tensor : tensors_) {
        if (tensor.gradient.defined()) zerod::Append(values, tensor.gradient);
      }
      return;
    }
    for (const ReferenceTensor& tensor : tensors_) zerod::Append(values, tensor.parameter);
    for (const ReferenceTensor& tensor : tensors_) zerod::Append(values, tensor.master);
  }

  /// The gradients of all ranks, each computed like on its own, summed in float32 in rank order.
  void Backward(int step, int world) {
    for (ReferenceTensor& tensor : tensors_) tensor.gradient.reset();
    for (int rank = 0; rank < world; ++rank) {
      const int batch = 10 * step + rank;
      LossOf(second_->forward(first_->forward(Input(batch))), Target(batch)).backward();
      for (ReferenceTensor& tensor : tensors_) {
        if (!tensor.parameter.grad().defined()) continue;
        const at::Tensor gradient = tensor.parameter.grad().to(at::kFloat, false, /*copy=*/true);
        tensor.parameter.mutable_grad().reset();
        tensor.gradient = tensor.gradient.defined() ? tensor.gradient + gradient : gradient;
      }
    }
  }

  void Step(int step, int world) {
    const c10::NoGradGuard no_grad;
    for (ReferenceTensor& tensor : tensors_) {
      if (!tensor.gradient.defined()) continue;
      const at::Tensor mean = (tensor.gradient * static_cast<float>(1.0 / world)).contiguous();
      for (int64_t i = 0; i < mean.numel(); ++i) {
        UpdateElement(tensor.master.data_ptr<float>()[i], tensor.exp_avg.data_ptr<float>()[i],
                      tensor.exp_avg_sq.data_ptr<float>()[i], mean.data_ptr<float>()[i], step + 1);
      }
      tensor.parameter.copy_(tensor.master);
    }
  }

 private:
  MixedLayer first_{kIn, kMiddle, 1};
  MixedLayer second_{kMiddle, kOut, 5};
  std::vector<ReferenceTensor> tensors_;
};

class Bf16Test : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(Bf16Test, MastersGradientsAndParametersEqualTheReferenceBitForBit) {
  const Daemons daemons(GetParam());
  const auto got = Train(daemons);
  Reference reference;
  std::vector<double> want;
  reference.Append(false, want);
  const std::vector<double> initial = want;
  for (int step = 0; step < kSteps; ++step) {
    reference.Backward(step, daemons.World());
    reference.Append(true, want);
    reference.Step(step, daemons.World());
    reference.Append(false, want);
  }
  for (int rank = 0; rank < daemons.World(); ++rank) {
    ASSERT_EQ(got[rank].size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[rank][i], want[i]) << "rank " << rank << ", value " << i;
    }
  }
  EXPECT_FALSE(std::equal(initial.begin(), initial.end(), want.end() - initial.size()));
}

TEST_P(Bf16Test, ATensorThatIsWrittenKeepsTheMastersOfTheOthers) {
  const Daemons daemons(GetParam());
  const auto got = RunRanksOrThrow(daemons, [](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedSequential model(*session, {});
    AddMixedModel(model);
    LossOf(model.Forward(Input(0)), Target(0)).backward();
    model.Step(AdamW());
    std::vector<double> values;
    Append(values, model.ReadTensor("first.weight", Content::kMaster));
    model.WriteTensor("first.gain", Formula({kMiddle}, 77) + 1e-6);
    model.WriteTensor("first.offset", Formula({kMiddle}, 78));
    for (const char* name : {"first.weight", "first.gain", "first.offset"}) {
      Append(values, model.ReadTensor(name, Content::kMaster));
    }
    session->Detach(true);
    return values;
  });
  for (const std::vector<double>& rank_values : got) {
    ValueReader reader(rank_values);
    const at::Tensor weight = reader.Next({kMiddle, kIn});
    EXPECT_FALSE(weight.equal(weight.to(at::kBFloat16).to(at::kDouble)));
    EXPECT_TRUE(reader.Next({kMiddle, kIn}).equal(weight));
    EXPECT_TRUE(reader.Next({kMiddle}).equal((Formula({kMiddle}, 77) + 1e-6).to(at::kDouble)));
    EXPECT_TRUE(reader.Next({kMiddle}).equal(Formula({kMiddle}, 78).to(at::kDouble)));
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, Bf16Test,
                         ::testing::Values(std::vector<int>{1}, std::vector<int>{2},
                                           std::vector<int>{1, 1}, std::vector<int>{2, 1}),
                         [](const auto& ranks) {
                           std::string text = "Ranks";
                           for (int count : ranks.param) text += Concat("_", count);
                           return text;
                         });

TEST(Bf16MemoryTest, ATrainableElementCosts18BytesAndAFrozenOneTwo) {
  constexpr int64_t kSide = 256;  // whole pages, so that nothing is padding
  const Daemons daemons({2});
  RunRanksOrThrow(daemons, [](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedSequential model(*session, {.groups = {{.pattern = "frozen", .train = false}}});
    for (const char* name : {"trained", "frozen"}) {
      model.AddLayer(name, [] {
        torch::nn::Linear linear(torch::nn::LinearOptions(kSide, kSide).bias(false));
        linear->to(at::kBFloat16);
        return linear;
      });
    }
    LossOf(model.Forward(at::ones({1, kSide}, at::kBFloat16)), at::ones({1, kSide}, at::kBFloat16))
        .backward();
    model.Step(AdamW());
    session->Detach(false);
    return std::vector<double>{};
  });
  const int64_t numel = kSide * kSide;
  const std::map<std::string, int64_t> want = {
      {"parameters", 2 * 2 * numel}, {"gradients", 4 * numel}, {"optimizer", 12 * numel}};
  size_t compared = 0;
  const auto memory = nlohmann::json::parse(daemons.Ctl(0, {"memory"}));
  for (const auto& entry : memory.at("classes")) {
    const auto found = want.find(entry.at("name").get<std::string>());
    if (found == want.end()) continue;
    ++compared;
    EXPECT_EQ(entry.at("predicted_bytes").get<int64_t>(), found->second) << entry;
    EXPECT_EQ(entry.at("actual_bytes").get<int64_t>(), found->second) << entry;
  }
  EXPECT_EQ(compared, want.size());
}

}  // namespace
}  // namespace zerod
