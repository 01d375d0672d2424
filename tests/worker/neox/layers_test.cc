#include "worker/neox/layers.h"

#include <algorithm>
#include <cmath>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/error.h"
#include "tests/worker/neox/plain_model.h"

namespace zerod::neox {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Config Small() {
  Config config;
  config.vocab_size = 50;
  config.hidden_size = 16;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.intermediate_size = 24;
  config.max_position_embeddings = 12;
  return config;
}

std::string ComplaintOf(Layer& layer, const at::Tensor& input) {
  try {
    layer.forward(input);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Layer, CallsItsParametersAsPublished) {
  PlainModel model(Small());
  std::vector<std::string> names;
  for (const auto& layer : model.layers()) {
    const auto parameters = layer->parameters();
    ASSERT_EQ(parameters.size(), layer->specs().size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      const TensorSpec& spec = layer->specs()[i];
      names.push_back(spec.name);
      EXPECT_TRUE(parameters[i].is_same(layer->parameter(spec.name))) << spec.name;
      EXPECT_EQ(parameters[i].sizes(), spec.shape) << spec.name;
      EXPECT_TRUE(parameters[i].requires_grad()) << spec.name;
    }
  }
  EXPECT_EQ(names.size(), 1U + 2 * 12 + 3);
  EXPECT_EQ(names[0], "gpt_neox.embed_in.weight");
  EXPECT_EQ(names[1], "gpt_neox.layers.0.input_layernorm.weight");
  EXPECT_EQ(names[24], "gpt_neox.layers.1.mlp.dense_4h_to_h.bias");
  EXPECT_EQ(names[27], "embed_out.weight");
}

TEST(Layer, HasDottedNamesInsideTheModule) {
  const Block block(Small(), 1);
  const auto named = block.named_parameters();
  EXPECT_TRUE(named.contains("attention.query_key_value.weight"));
  EXPECT_TRUE(named.contains("mlp.dense_h_to_4h.bias"));
  EXPECT_TRUE(block.parameter("attention.dense.bias")
                  .is_same(block.parameter("gpt_neox.layers.1.attention.dense.bias")));
}

TEST(Layer, InitialValuesDependOnSeedAndNameOnly) {
  const Config config = Small();
  Block first(config, 1);
  Block second(config, 1);
  Block other(config, 0);
  other.Initialize(5);
  first.Initialize(5);
  second.Initialize(5);
  for (const TensorSpec& spec : first.specs()) {
    const at::Tensor& values = first.parameter(spec.name);
    EXPECT_TRUE(values.equal(second.parameter(spec.name))) << spec.name;
    if (spec.deviation == 0) {
      const double expected = spec.name.ends_with("layernorm.weight") ? 1 : 0;
      EXPECT_TRUE(values.eq(expected).all().item<bool>()) << spec.name;
    }
  }
  const char* kWeight = "attention.query_key_value.weight";  // 768 elements
  EXPECT_NEAR(first.parameter(kWeight).std().item<double>(), 0.02, 0.002);
  EXPECT_FALSE(first.parameter(kWeight).equal(other.parameter(kWeight)));
  second.Initialize(6);
  EXPECT_FALSE(first.parameter(kWeight).equal(second.parameter(kWeight)));
}

/// The embedding has more elements than are made at once.
TEST(Layer, InitialValuesFollowTheConfigAndAreRoundedInBfloat16) {
  Config config = Small();
  config.vocab_size = 20000;
  config.initializer_range = 0.3;
  Embedding wide(config);
  Embedding narrow(config, {.dtype = DType::kBFloat16});
  wide.Initialize(9);
  narrow.Initialize(9);
  std::vector<float> expected(static_cast<size_t>(wide.weight().numel()));
  FillInitialValues(wide.specs()[0], 9, 0, expected);
  const at::Tensor whole = at::from_blob(expected.data(), wide.weight().sizes(), at::kFloat);
  EXPECT_TRUE(wide.weight().equal(whole));
  EXPECT_EQ(narrow.weight().scalar_type(), at::kBFloat16);
  EXPECT_TRUE(narrow.weight().equal(whole.to(at::kBFloat16)));
  EXPECT_NEAR(whole.std().item<double>(), 0.3, 0.002);
  EXPECT_NEAR(whole.mean().item<double>(), 0, 0.002);
}

TEST(Embedding, NamesATokenOutsideTheVocabulary) {
  Embedding embedding(Small());
  at::Tensor tokens = at::zeros({2, 3}, at::kLong);
  tokens[1][2] = 50;
  EXPECT_THAT(ComplaintOf(embedding, tokens), AllOf(HasSubstr("token id 50"), HasSubstr("sample 1"),
                                                    HasSubstr("position 2"), HasSubstr("of 50")));
  tokens[1][2] = -1;
  EXPECT_THAT(ComplaintOf(embedding, tokens), HasSubstr("token id -1"));
  tokens[1][2] = 49;
  EXPECT_EQ(ComplaintOf(embedding, tokens), "");
}

TEST(Block, NamesASequenceThatIsTooLong) {
  Block block(Small(), 0);
  EXPECT_THAT(ComplaintOf(block, at::zeros({1, 13, 16})),
              AllOf(HasSubstr("13"), HasSubstr("12 (max_position_embeddings)")));
}

TEST(Block, NeverLooksAhead) {
  Block block(Small(), 0);
  block.Initialize(1);
  const at::Tensor input = at::randn({1, 10, 16});
  at::Tensor changed = input.clone();
  changed[0][7][3] += 1;
  const at::Tensor before = block.forward(input);
  const at::Tensor after = block.forward(changed);
  EXPECT_TRUE(before.narrow(1, 0, 7).equal(after.narrow(1, 0, 7)));
  EXPECT_FALSE(before.narrow(1, 7, 1).equal(after.narrow(1, 7, 1)));
  EXPECT_FALSE(before.narrow(1, 9, 1).equal(after.narrow(1, 9, 1)));
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double Formula(Activation activation, double x) {
  switch (activation) {
    case Activation::kGelu:
      return x / 2 * (1 + std::erf(x / std::sqrt(2)));
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kQuickGelu:
      return x * Sigmoid(1.702 * x);
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kSilu:
      return x * Sigmoid(x);
    case Activation::kTanh:
      return std::tanh(x);
  }
  return NAN;
}

/// A block whose MLP sees nothing but the bias of its norm, and passes activation(bias) on.
TEST(Block, ComputesEveryActivationAndItsDerivativeByTheFormula) {
  for (const Activation activation :
       {Activation::kGelu, Activation::kGeluTanh, Activation::kQuickGelu, Activation::kRelu,
        Activation::kSilu, Activation::kTanh}) {
    Config config = Small();
    config.intermediate_size = config.hidden_size;
    config.hidden_act = activation;
    config.initializer_range = 0;
    Block block(config, 0);
    block.Initialize(0);
    at::Tensor bias = block.parameter("post_attention_layernorm.bias");
    {
      const at::NoGradGuard no_gradient;
      block.parameter("post_attention_layernorm.weight").fill_(0);
      block.parameter("mlp.dense_h_to_4h.weight").fill_diagonal_(1);
      block.parameter("mlp.dense_4h_to_h.weight").fill_diagonal_(1);
      for (int64_t i = 0; i < 16; ++i) bias[i].fill_(0.4 * static_cast<double>(i) - 3);
    }
    const at::Tensor output = block.forward(at::zeros({1, 1, 16}));
    output.sum().backward();
    for (int64_t i = 0; i < 16; ++i) {
      const double x = bias[i].item<double>();
      const double slope = (Formula(activation, x + 1e-5) - Formula(activation, x - 1e-5)) / 2e-5;
      EXPECT_NEAR(output[0][0][i].item<double>(), Formula(activation, x), 1e-6) << x;
      EXPECT_NEAR(bias.grad()[i].item<double>(), slope, 1e-6) << x;
    }
  }
}

TEST(Model, TiedHeadUsesTheEmbeddingAndAddsNoParameter) {
  Config config = Small();
  config.tie_word_embeddings = true;
  PlainModel model(config);
  EXPECT_EQ(model.layers().back()->parameters().size(), 2U);
  model.Initialize(1);
  const at::Tensor tokens = at::zeros({1, 4}, at::kLong);
  const at::Tensor before = model.Forward(tokens);
  const at::NoGradGuard no_gradient;
  model.layers()[0]->parameter("embed_in.weight")[33].fill_(1);  // no input, but an output
  const at::Tensor changed = model.Forward(tokens).ne(before).any(1)[0];
  EXPECT_TRUE(changed[33].item<bool>());
  EXPECT_EQ(changed.sum().item<int64_t>(), 1);
}

}  // namespace
}  // namespace zerod::neox
