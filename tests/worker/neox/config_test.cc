#include "worker/neox/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/worker/neox/scratch_file.h"

namespace zerod::neox {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

json Minimal() {
  return {{"model_type", "gpt_neox"},     {"vocab_size", 96},         {"hidden_size", 32},
          {"num_hidden_layers", 3},       {"num_attention_heads", 4}, {"intermediate_size", 128},
          {"max_position_embeddings", 64}};
}

/// The minimal config with one key set (or, with null text, removed).
std::string With(const std::string& key, const char* value) {
  json config = Minimal();
  config.erase(key);
  if (value != nullptr) config[key] = json::parse(value);
  return config.dump();
}

Config Parsed(const json& config) { return ParseConfig(config.dump(), "config.json"); }

TEST(Config, HasTheDefaultsOfThePublishedImplementation) {
  const Config config = Parsed(Minimal());
  EXPECT_EQ(config.vocab_size, 96);
  EXPECT_EQ(config.head_size(), 8);
  EXPECT_EQ(config.hidden_act, Activation::kGelu);
  EXPECT_EQ(config.rotary_pct, 0.25);
  EXPECT_EQ(config.rotary_emb_base, 10000);
  EXPECT_EQ(config.layer_norm_eps, 1e-5);
  EXPECT_EQ(config.initializer_range, 0.02);
  EXPECT_EQ(config.attention_dropout, 0);
  EXPECT_EQ(config.hidden_dropout, 0);
  EXPECT_TRUE(config.use_parallel_residual && config.attention_bias);
  EXPECT_FALSE(config.tie_word_embeddings);
}

TEST(Config, UnderstandsBothSpellings) {
  json older = Minimal();
  older.update({{"rotary_pct", 0.5}, {"rotary_emb_base", 500}, {"torch_dtype", "float16"}});
  json newer = Minimal();
  newer.update({{"dtype", "float16"},
                {"rope_parameters",
                 {{"rope_type", "default"}, {"rope_theta", 500}, {"partial_rotary_factor", 0.5}}}});
  json both = older;
  both.update(newer);
  for (const json& spelling : {older, newer, both}) {
    const Config config = Parsed(spelling);
    EXPECT_EQ(config.rotary_pct, 0.5);
    EXPECT_EQ(config.rotary_emb_base, 500);
    EXPECT_EQ(config.rotary_ndims(), 4);
    EXPECT_EQ(config.dtype, DType::kFloat16);
  }
  both["rotary_pct"] = 0.25;
  EXPECT_THAT(ComplaintOf([&] { Parsed(both); }), HasSubstr("'rotary_pct' is 0.25"));
}

TEST(Config, TakesRopeScalingForRopeParameters) {
  json config = Minimal();
  config["rope_scaling"] = {{"type", "default"}, {"partial_rotary_factor", 0.5}};
  EXPECT_EQ(Parsed(config).rotary_pct, 0.5);
}

TEST(Config, ReadsWhatTrainingNeeds) {
  json config = Minimal();
  config.update({{"attention_dropout", 0.1},
                 {"hidden_dropout", 0.25},
                 {"classifier_dropout", 0.9},
                 {"initializer_range", 0.01},
                 {"layer_norm_eps", 1e-6},
                 {"attention_probs_dropout_prob", 0}});
  const Config read = Parsed(config);
  EXPECT_EQ(read.attention_dropout, 0.1);
  EXPECT_EQ(read.hidden_dropout, 0.25);
  EXPECT_EQ(read.initializer_range, 0.01);
  EXPECT_EQ(read.layer_norm_eps, 1e-6);
}

TEST(Config, KnowsTheNamesOfActivations) {
  const std::map<std::string, Activation> names = {{"gelu", Activation::kGelu},
                                                   {"gelu_python", Activation::kGelu},
                                                   {"gelu_new", Activation::kGeluTanh},
                                                   {"gelu_fast", Activation::kGeluTanh},
                                                   {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                                   {"quick_gelu", Activation::kQuickGelu},
                                                   {"relu", Activation::kRelu},
                                                   {"silu", Activation::kSilu},
                                                   {"swish", Activation::kSilu},
                                                   {"tanh", Activation::kTanh}};
  for (const auto& [name, activation] : names) {
    json config = Minimal();
    config["hidden_act"] = name;
    EXPECT_EQ(Parsed(config).hidden_act, activation) << name;
  }
}

TEST(Config, IgnoresWhatDoesntChangeTraining) {
  json config = Minimal();
  config.update(json::parse(R"({"use_cache": true, "bos_token_id": 0, "eos_token_id": [1, 2],
      "architectures": ["GPTNeoXForCausalLM"], "transformers_version": "5.24.0",
      "rope_scaling": null,
      "classifier_dropout": 0.1, "hidden_dropout": 0.0, "attention_dropout": 0, "pruned_heads": {},
      "id2label": {"0": "LABEL_0"}, "is_encoder_decoder": false, "problem_type": null})"));
  EXPECT_EQ(Parsed(config).hidden_size, 32);
}

TEST(Config, RoundsAnOddNumberOfRotaryDimensionsUp) {
  json config = Minimal();
  config.update({{"hidden_size", 24}, {"num_attention_heads", 2}});  // heads of 12
  EXPECT_EQ(Parsed(config).rotary_ndims(), 3);
  EXPECT_EQ(Parsed(config).rotary_pairs(), 2);
}

struct BadConfig {
  const char* key;
  const char* value;  // null: the key is missing
  const char* complaint;
};

class ConfigComplaint : public testing::TestWithParam<BadConfig> {};

TEST_P(ConfigComplaint, NamesFileAndKey) {
  const BadConfig& bad = GetParam();
  EXPECT_THAT(ComplaintOf([&] { ParseConfig(With(bad.key, bad.value), "dir/config.json"); }),
              AllOf(HasSubstr("dir/config.json"), HasSubstr(bad.key), HasSubstr(bad.complaint)));
}

INSTANTIATE_TEST_SUITE_P(
    Keys, ConfigComplaint,
    testing::Values(BadConfig{"model_type", nullptr, "is missing"},
                    BadConfig{"model_type", "\"llama\"", "supported are gpt_neox"},
                    BadConfig{"vocab_size", nullptr, "is missing"},
                    BadConfig{"vocab_size", "0", "between 1 and"},
                    BadConfig{"vocab_size", "-5", "between 1 and"},
                    BadConfig{"vocab_size", "18446744073709551615", "between 1 and"},
                    BadConfig{"vocab_size", "\"96\"", "must be an integer"},
                    BadConfig{"hidden_size", "32.5", "must be an integer"},
                    BadConfig{"hidden_size", "30", "don't divide"},
                    BadConfig{"hidden_size", "9007199254740992", "between 1 and"},
                    BadConfig{"num_hidden_layers", "[3]", "must be an integer"},
                    BadConfig{"num_attention_heads", "0", "between 1 and"},
                    BadConfig{"intermediate_size", "null", "is missing"},
                    BadConfig{"max_position_embeddings", nullptr, "is missing"},
                    BadConfig{"hidden_act", "\"mish\"", "supported are gelu"},
                    BadConfig{"hidden_act", "3", "must be a string"},
                    BadConfig{"rotary_pct", "1.5", "between 0 and 1"},
                    BadConfig{"rotary_pct", "-0.1", "between 0 and 1"},
                    BadConfig{"rotary_emb_base", "0", "must be positive"},
                    BadConfig{"rope_scaling", "{\"type\": \"linear\"}", "supported are default"},
                    BadConfig{"rope_parameters", "{\"rope_type\": \"yarn\"}",
                              "supported are default"},
                    BadConfig{"rope_parameters", "{\"factor\": 2}", "not a key"},
                    BadConfig{"rope_parameters", "3", "must be an object"},
                    BadConfig{"hidden_dropout", "1", "below 1"},
                    BadConfig{"attention_dropout", "-0.1", "at least 0"},
                    BadConfig{"layer_norm_eps", "0", "must be positive"},
                    BadConfig{"initializer_range", "-1", "must not be negative"},
                    BadConfig{"initializer_range", "true", "must be a number"},
                    BadConfig{"use_parallel_residual", "1", "must be true or false"},
                    BadConfig{"torch_dtype", "\"int8\"", "supported are"},
                    BadConfig{"pruned_heads", "{\"0\": [1]}", "must be empty"},
                    BadConfig{"num_key_value_heads", "2", "not a key"}));

TEST(Config, RefusesRotaryDimensionsThatDontFit) {
  json config = Minimal();
  config.update({{"hidden_size", 12}, {"rotary_pct", 1.0}});  // heads of 3 can't be halved
  EXPECT_THAT(ComplaintOf([&] { Parsed(config); }), HasSubstr("rotates 4 elements"));
}

TEST(Config, RefusesBrokenFiles) {
  for (const char* text :
       {"", "{", "[]", "{} {}", "{\"a\": 1, \"a\": 2}", "\xff\xfe", "{\"vocab_size\": 1e999}"}) {
    const ScratchFile file(text);
    EXPECT_THAT(ComplaintOf([&] { ReadConfig(file.path()); }), HasSubstr(file.path())) << text;
  }
  EXPECT_THAT(ComplaintOf([] { ReadConfig("/nonexistent/config.json"); }),
              AllOf(HasSubstr("/nonexistent/config.json"), HasSubstr("No such file")));
  EXPECT_THAT(ComplaintOf([] { ReadConfig(testing::TempDir()); }), HasSubstr("not a regular file"));
}

TEST(Config, RefusesDeepNesting) {
  const std::string text = "{\"id2label\": " + std::string(100000, '[');
  EXPECT_THAT(ComplaintOf([&] { ParseConfig(text, "c"); }), HasSubstr("nested too deeply"));
}

}  // namespace
}  // namespace zerod::neox
