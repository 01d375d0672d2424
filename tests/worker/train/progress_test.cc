#include "worker/train/progress.h"

#include <algorithm>
#include <chrono>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zerod::train {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr ProgressState kHalf{
    .step = 50, .steps = 100, .loss = 2.34567, .tokens_per_s = 12345, .remaining_s = 65};

int EightyColumns() { return 80; }

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(BarText, FillsALineUpToTheLastColumn) {
  const std::string text = BarText(kHalf, 80);
  EXPECT_EQ(text,
            " 50% [#############.............]  50/100  loss 2.346  12.3k tokens/s  "
            "ETA 1:05");
  EXPECT_EQ(text.size(), 79u);
}

TEST(BarText, IsFullOnlyAtTheEnd) {
  ProgressState state = kHalf;
  state.step = 99;
  EXPECT_THAT(BarText(state, 120), HasSubstr(".]"));
  state.step = 100;
  EXPECT_EQ(CountOf(BarText(state, 120), "."), 2u);  // of loss and rate
}

TEST(BarText, LeavesTheBarOutOfANarrowTerminalAndNeverWraps) {
  EXPECT_EQ(BarText(kHalf, 60), " 50%  50/100  loss 2.346  12.3k tokens/s  ETA 1:05");
  for (const int columns : {0, 1, 5, 20, 40, 60, 79, 80, 81, 200}) {
    EXPECT_LE(static_cast<int>(BarText(kHalf, columns).size()), std::max(columns - 1, 0));
  }
}

TEST(Progress, RedrawsTheBarAtMostTenTimesASecond) {
  std::ostringstream out;
  Console console(ConsoleStyle::kTerminal, out);
  Progress progress(console, 1000, 0, EightyColumns);
  for (int i = 1; i <= 100; ++i) {
    progress.Step({.step = i, .loss = 1, .tokens_per_s = 100, .step_ms = 10},
                  Progress::Clock::time_point(milliseconds(10 * i)));
  }
  // At 10 ms, then at 110, 210, ..., 910.
  EXPECT_EQ(CountOf(out.str(), "\r"), 10u);
}

TEST(Progress, WritesPlainLinesToAFile) {
  std::ostringstream out;
  Console console(ConsoleStyle::kPlain, out);
  Progress progress(console, 1000, 0, EightyColumns);
  for (int i = 1; i <= 1000; ++i) {
    progress.Step({.step = i, .loss = 1.5, .tokens_per_s = 100, .step_ms = 12},
                  Progress::Clock::time_point(milliseconds(12 * i)));
  }
  const std::string text = out.str();
  EXPECT_THAT(text, testing::StartsWith("step    1/1000  loss 1.500    100 tokens/s  ETA 0:12\n"));
  EXPECT_THAT(text, testing::EndsWith("step 1000/1000  loss 1.500    100 tokens/s  ETA 0:00\n"));
  EXPECT_EQ(CountOf(text, "\n"), 4u);  // at 0, 5 and 10 s, and the last
  EXPECT_EQ(text.find_first_of("\r\x1b"), text.npos);
}

TEST(Progress, ShowsAnEvaluationAboveTheBar) {
  std::ostringstream out;
  Console console(ConsoleStyle::kTerminal, out);
  Progress progress(console, 10, 0.25, EightyColumns);
  progress.Step({.step = 1, .loss = 3, .tokens_per_s = 1, .step_ms = 1}, {});
  out.str("");
  progress.Evaluated(1, 2.5);
  EXPECT_THAT(out.str(), testing::StartsWith("\r\x1b[Kstep  1/10  held-out loss 2.500"));
  EXPECT_THAT(out.str(), HasSubstr("perplexity 12.18\n 10% ["));
  EXPECT_THAT(out.str(), HasSubstr("1/10  epoch 0.25  loss"));
}

TEST(Console, IsSilentForOtherRanks) {
  std::ostringstream out;
  Console console(ConsoleStyle::kSilent, out);
  console.Line("line");
  console.Bar("bar");
  console.Block("block");
  console.ClearBar();
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace zerod::train
