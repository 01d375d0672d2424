// zerod-train as a person uses it: jobs that go on, batches of several ranks, masked documents.

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/system/stored_model.h"
#include "tests/system/train_program.h"

namespace zerod {
namespace {

using testing::HasSubstr;

using Arguments = std::vector<std::string>;

Arguments operator+(Arguments one, const Arguments& more) {
  one.insert(one.end(), more.begin(), more.end());
  return one;
}

/// A model and tokens for it in a folder of their own.
class TrainTest : public testing::Test {
 protected:
  TrainTest() {
    WriteTokens(File("tokens"), 2000, ModelShape().vocab_size);
    WriteTokens(File("eval"), 300, ModelShape().vocab_size);
  }

  std::string File(const std::string& name) const { return folder_.File(name); }
  Arguments Base(const std::string& log) const {
    return {"--model", File("model"), "--tokens", File("tokens"), "--batch", "4",
            "--seq",   "16",          "--log",    File(log),      "--lr",    "1e-2"};
  }
  Arguments ModelRoot() const { return {"--model-root", folder_.path().string()}; }

  ScratchFolder folder_;
};

class ResumeTest : public TrainTest, public testing::WithParamInterface<std::vector<int>> {};

TEST_P(ResumeTest, AJobThatGoesOnHasTheBitsOfOneThatNeverStopped) {
  WriteModel(File("model"), {.files = 0, .dropout = 0.1});
  const Arguments common = {"--micro-batches", "2", "--shuffle",     "3", "--schedule", "cosine",
                            "--warmup",        "2", "--decay-steps", "8", "--min-lr",   "1e-3",
                            "--clip",          "1"};
  const Daemons daemons(GetParam());
  TrainProgram(daemons, Base("whole.jsonl") + common +
                            Arguments{"--create", "--job", "whole", "--steps", "8", "--export",
                                      File("whole"), "--drop"})
      .ExpectEnd(0);
  TrainProgram(daemons, Base("parts.jsonl") + common +
                            Arguments{"--create", "--job", "parts", "--steps", "4"})
      .ExpectEnd(0);
  TrainProgram rest(daemons, Base("parts.jsonl") + common +
                                 Arguments{"--attach", "--job", "parts", "--steps", "8", "--export",
                                           File("parts"), "--drop"});
  rest.ExpectEnd(0);
  EXPECT_THAT(rest.output(0), HasSubstr("job parts has taken 4 steps"));
  const auto losses = ReadLosses(File("whole.jsonl"));
  EXPECT_EQ(losses.size(), 8U);
  EXPECT_EQ(ReadLosses(File("parts.jsonl")), losses);
  const auto whole = ReadStoredModel(File("whole"));
  const auto parts = ReadStoredModel(File("parts"));
  ASSERT_EQ(whole.size(), 3U * 12 + 4);
  for (const auto& [name, tensor] : whole) EXPECT_TRUE(SameTensor(tensor, parts.at(name))) << name;
}

INSTANTIATE_TEST_SUITE_P(Placements, ResumeTest,
                         testing::Values(std::vector<int>{2}, std::vector<int>{1, 1}),
                         [](const auto& ranks) { return ranks.param.size() == 1 ? "One" : "Two"; });

TEST_F(TrainTest, AttachRefusesAJobThatIsNotThereAndCreateOneThatIs) {
  WriteModel(File("model"), {.files = 0});
  const Daemons daemons({1});
  TrainProgram none(daemons, Base("log") + Arguments{"--attach", "--steps", "1"});
  EXPECT_NE(none.rank(0).Wait(std::chrono::seconds(60)), 0);
  EXPECT_THAT(none.error(0), HasSubstr("default"));
  TrainProgram(daemons, Base("log") + Arguments{"--create", "--steps", "1"}).ExpectEnd(0);
  TrainProgram other(daemons,
                     Base("log") + Arguments{"--attach", "--steps", "2", "--shuffle", "5"});
  other.ExpectEnd(0);
  EXPECT_THAT(other.output(0), HasSubstr("other data than before: --shuffle was \"off\" and is 5"));
  TrainProgram again(daemons, Base("log") + Arguments{"--create", "--steps", "1"});
  EXPECT_NE(again.rank(0).Wait(std::chrono::seconds(60)), 0);
  EXPECT_THAT(again.error(0), HasSubstr("default"));
}

/// Losses of a run in one process, or two.
std::vector<double> LossesOf(const std::string& log) {
  std::vector<double> losses;
  for (const std::string& text : ReadLosses(log)) {
    losses.push_back(std::stod(text.starts_with("eval ") ? text.substr(5) : text));
  }
  return losses;
}

TEST_F(TrainTest, MaskedDocumentsCountAlikeHoweverABatchIsDivided) {
  WriteModel(File("model"), {});
  const Arguments common = {
      "--steps",       "6",          "--document-end", "49", "--mask-documents",
      "--eval-tokens", File("eval"), "--eval-every",   "3",  "--drop"};
  const Daemons one({1}, ModelRoot());
  TrainProgram(one, Base("one.jsonl") + common).ExpectEnd(0);
  const Daemons two({1, 1}, ModelRoot());
  TrainProgram(two, Base("two.jsonl") + common + Arguments{"--micro-batches", "2"}).ExpectEnd(0);
  TrainProgram(one, Base("all.jsonl") + Arguments{"--steps", "6", "--drop"}).ExpectEnd(0);
  const auto expected = LossesOf(File("one.jsonl"));
  const auto losses = LossesOf(File("two.jsonl"));
  ASSERT_EQ(expected.size(), 6U + 2);
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(losses[i], expected[i], 1e-5 * expected[i]) << i;
  }
  EXPECT_GT(std::abs(LossesOf(File("all.jsonl"))[0] - expected[0]), 1e-4);
}

TEST_F(TrainTest, EpochsSetTheNumberOfSteps) {
  WriteModel(File("model"), {});
  const Daemons daemons({1}, ModelRoot());
  TrainProgram run(daemons, Base("log") + Arguments{"--epochs", "0.25", "--drop"});
  run.ExpectEnd(0);
  EXPECT_EQ(ReadLosses(File("log")).size(), 8U);  // a quarter of 2000 tokens, 64 a step
  EXPECT_THAT(run.output(0), HasSubstr("8/8  epoch 0.26"));
}

}  // namespace
}  // namespace zerod
