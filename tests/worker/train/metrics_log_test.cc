#include "worker/train/metrics_log.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "proto/contract/error.h"

namespace zerod::train {
namespace {

class MetricsLogFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "metrics.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path() const { return folder_ + "/log.jsonl"; }
  std::string Content() const {
    std::ostringstream text;
    text << std::ifstream(Path()).rdbuf();
    return text.str();
  }

  std::string folder_;
};

TEST(MetricsLine, HoldsAStepInTheAgreedOrder) {
  EXPECT_EQ(StepLine({.step = 7,
                      .loss = 2.5,
                      .grad_norm = 0.75,
                      .tokens_per_s = 1024,
                      .step_ms = 12.5,
                      .skipped = false}),
            "{\"step\":7,\"loss\":2.5,\"grad_norm\":0.75,\"tokens_per_s\":1024.0,"
            "\"step_ms\":12.5}\n");
}

TEST(MetricsLine, KeepsEveryBitOfALoss) {
  const double loss = 1.0 / 3;
  const auto line = nlohmann::json::parse(StepLine({.step = 1, .loss = loss}));
  EXPECT_EQ(line["loss"].get<double>(), loss);
}

TEST(MetricsLine, SaysThatAStepWasSkippedAndStaysValid) {
  const auto line =
      nlohmann::json::parse(StepLine({.step = 3,
                                      .loss = 1,
                                      .grad_norm = std::numeric_limits<double>::infinity(),
                                      .skipped = true}));
  EXPECT_TRUE(line["grad_norm"].is_null());
  EXPECT_EQ(line["skipped"], true);
}

TEST(MetricsLine, HoldsAnEvaluation) {
  EXPECT_EQ(EvalLine(100, 0), "{\"step\":100,\"eval_loss\":0.0,\"perplexity\":1.0}\n");
  const auto line = nlohmann::json::parse(EvalLine(100, 1.25));
  EXPECT_EQ(line["eval_loss"], 1.25);
  EXPECT_DOUBLE_EQ(line["perplexity"].get<double>(), 3.4903429574618414);  // e^1.25
}

TEST(MetricsLine, HasNoFigureForAStepInWhichNothingCounted) {
  const auto line = nlohmann::json::parse(
      StepLine({.step = 3, .loss = std::numeric_limits<double>::quiet_NaN(), .uncounted = true}));
  EXPECT_TRUE(line["loss"].is_null());
}

TEST_F(MetricsLogFile, ShowsEachLineAsSoonAsItIsWritten) {
  MetricsLog log(Path());
  log.Write("one\n");
  EXPECT_EQ(Content(), "one\n");
  log.Write("two\n");
  EXPECT_EQ(Content(), "one\ntwo\n");
}

TEST_F(MetricsLogFile, GoesOnAfterWhatIsThereUnlessItIsCleared) {
  MetricsLog(Path()).Write("before\n");
  MetricsLog log(Path());
  log.Write("after\n");
  EXPECT_EQ(Content(), "before\nafter\n");
  log.Clear();
  log.Write("new\n");
  EXPECT_EQ(Content(), "new\n");
}

TEST_F(MetricsLogFile, NamesAPathThatCannotBeOpened) {
  try {
    MetricsLog log(folder_ + "/missing/log.jsonl");
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(std::string(error.what()),
              "cannot open the log " + folder_ + "/missing/log.jsonl: No such file or directory");
  }
}

}  // namespace
}  // namespace zerod::train
