#include "worker/train/text_sampler.h"

#include <algorithm>
#include <limits>

#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/error.h"
#include "tests/worker/neox/plain_model.h"

namespace zerod::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kPositions = 12;

neox::Config Small() {
  neox::Config config;
  config.vocab_size = 50;
  config.hidden_size = 16;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.intermediate_size = 24;
  config.max_position_embeddings = kPositions;
  config.initializer_range = 0.3;
  return config;
}

/// A model without daemons, and what it was asked for.
class SamplerTest : public testing::Test {
 protected:
  SamplerTest() { model_.Initialize(4); }

  SampleModel Model() {
    return {config_, model_.forward(),
            [this](const at::Tensor& ids) {
              lengths_.push_back(ids.size(1));
              return model_.Forward(ids);
            },
            [this](int64_t choice) { return agree_(choice); }};
  }

  /// The most likely token after `ids`, computed without any cache.
  int64_t Best(const std::vector<int64_t>& ids) {
    const c10::NoGradGuard no_grad;
    return model_.Forward(at::tensor(ids).unsqueeze(0))[0][-1].argmax().item<int64_t>();
  }

  const neox::Config config_ = Small();
  neox::PlainModel model_{config_};
  std::vector<int64_t> lengths_;
  std::function<int64_t(int64_t)> agree_ = [](int64_t choice) { return choice; };
};

TEST_F(SamplerTest, GreedyTokensAreThoseOfWholeForwardsAtOnePositionEach) {
  const std::vector<int64_t> prompt = {3, 1, 4};
  const auto made = SampleTokens(prompt, {.tokens = 9, .temperature = 0}, Model());
  std::vector<int64_t> ids = prompt;
  for (int i = 0; i < 9; ++i) ids.push_back(Best(ids));
  EXPECT_EQ(made, std::vector<int64_t>(ids.begin() + 3, ids.end()));
  EXPECT_THAT(lengths_, ElementsAre(3, 1, 1, 1, 1, 1, 1, 1, 1));
}

TEST_F(SamplerTest, ForgetsTheOlderHalfWhenThePositionsAreFull) {
  std::vector<int64_t> ids = {7, 7};
  const auto made = SampleTokens(ids, {.tokens = 20, .temperature = 0}, Model());
  ASSERT_EQ(made.size(), 20U);
  size_t begin = 0;  // of what the model sees
  for (const int64_t token : made) {
    if (ids.size() - begin > kPositions) begin = ids.size() - kPositions / 2;
    EXPECT_EQ(token, Best({ids.begin() + static_cast<int64_t>(begin), ids.end()}));
    ids.push_back(token);
  }
  EXPECT_THAT(std::vector<int64_t>(lengths_.begin() + 10, lengths_.begin() + 14),
              ElementsAre(1, 6, 1, 1));
}

TEST_F(SamplerTest, LooksBackAsFarAsItsContextInALongPrompt) {
  std::vector<int64_t> prompt(40);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int64_t>(i);
  const auto made = SampleTokens(prompt, {.tokens = 1, .temperature = 0, .context = 5}, Model());
  EXPECT_EQ(made[0], Best({35, 36, 37, 38, 39}));
}

TEST_F(SamplerTest, DrawsTheSameForASeedAndOtherwiseForAnother) {
  const SampleOptions options{.tokens = 30, .temperature = 1, .seed = 3};
  const auto first = SampleTokens({1}, options, Model());
  EXPECT_EQ(SampleTokens({1}, options, Model()), first);
  SampleOptions other = options;
  other.seed = 4;
  EXPECT_NE(SampleTokens({1}, other, Model()), first);
}

TEST_F(SamplerTest, GoesOnWithWhatRankZeroDrew) {
  int64_t next = 10;
  agree_ = [&](int64_t /*choice*/) { return next++; };
  EXPECT_THAT(SampleTokens({1}, {.tokens = 3}, Model()), ElementsAre(10, 11, 12));
}

TEST_F(SamplerTest, EndsAtTheEndToken) {
  int64_t next = 10;
  agree_ = [&](int64_t /*choice*/) { return next++; };
  EXPECT_THAT(SampleTokens({1}, {.tokens = 9, .end_token = 12}, Model()), ElementsAre(10, 11));
}

TEST_F(SamplerTest, NeverDrawsBeyondTheVocabulary) {
  for (const double temperature : {0.0, 5.0}) {
    const auto made =
        SampleTokens({1}, {.tokens = 60, .temperature = temperature, .vocabulary = 4}, Model());
    EXPECT_LT(*std::ranges::max_element(made), 4);
  }
}

TEST_F(SamplerTest, LeavesTheModelAtEvaluation) {
  agree_ = [](int64_t /*choice*/) -> int64_t { throw Error(ErrorCode::kAborted, "over"); };
  EXPECT_THROW(SampleTokens({1}, {}, Model()), Error);
  EXPECT_EQ(model_.forward().cache(), nullptr);
}

TEST_F(SamplerTest, EndsWithAnErrorWhereLogitsAreNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    int64_t calls = 0;
    SampleModel model = Model();
    model.run = [&](const at::Tensor& ids) {
      at::Tensor logits = model_.Forward(ids).slice(1, -1).clone();
      if (++calls == 3) logits[0][0][7] = bad;
      return logits;
    };
    std::vector<int64_t> choices;
    agree_ = [&](int64_t choice) { return choices.emplace_back(choice); };
    try {
      SampleTokens({1}, {.tokens = 9}, model);
      ADD_FAILURE() << "sampled from " << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
      EXPECT_THAT(error.what(),
                  HasSubstr("output for new token 3 holds values that aren't finite"));
    }
    // The others hear of it: nobody is left waiting.
    ASSERT_EQ(choices.size(), 3U);
    EXPECT_EQ(choices[2], -1);
    // What can't be drawn doesn't matter.
    calls = 0;
    EXPECT_EQ(SampleTokens({1}, {.tokens = 9, .vocabulary = 7}, model).size(), 9U);
  }
}

TEST_F(SamplerTest, RefusesWhatCannotBeDone) {
  const auto complaint = [&](const std::vector<int64_t>& prompt, const SampleOptions& options) {
    try {
      SampleTokens(prompt, options, Model());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(complaint({}, {}), HasSubstr("no token"));
  EXPECT_THAT(complaint({1, 50}, {}), HasSubstr("token 50 at place 1"));
  EXPECT_THAT(complaint({-1}, {}), HasSubstr("vocabulary of 50"));
  EXPECT_THAT(complaint({1}, {.temperature = -1}), HasSubstr("temperature"));
  EXPECT_THAT(complaint({1}, {.top_k = -1}), HasSubstr("top-k"));
  EXPECT_THAT(complaint({1}, {.top_p = 0}), HasSubstr("top-p"));
  EXPECT_THAT(complaint({1}, {.context = 13}), HasSubstr("12"));
}

TEST(DecodeTokens, JoinsBytesAndNamesIdsWithoutAny) {
  EXPECT_EQ(DecodeTokens({1, 0, 2, 3}, {"a", "bc", ""}), "bca<3>");
}

}  // namespace
}  // namespace zerod::train
