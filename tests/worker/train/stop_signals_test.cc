#include "worker/train/stop_signals.h"

#include <csignal>

#include <gtest/gtest.h>

namespace zerod::train {
namespace {

TEST(StopSignals, NoteTheFirstSignalWithoutEndingTheProcess) {
  const StopSignals signals;
  EXPECT_EQ(signals.Noted(), 0);
  raise(SIGTERM);
  EXPECT_EQ(signals.Noted(), SIGTERM);
}

TEST(StopSignals, LetTheSecondSignalEndTheProcessAtOnce) {
  EXPECT_EXIT(
      {
        const StopSignals signals;
        raise(SIGINT);
        raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST(StopVotes, StopAllRanksIfOneIsTold) {
  std::vector<double> sum = {1.5};
  AppendStopVotes(0, sum);
  EXPECT_EQ(CountStopVotes(sum), 0);
  std::vector<double> told = {1.5};
  AppendStopVotes(SIGTERM, told);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += told[i];
  EXPECT_EQ(sum[0], 3);
  EXPECT_EQ(CountStopVotes(sum), SIGTERM);
}

TEST(StopVotes, PreferTheSignalOfTheKeyboardOnAllRanksAlike) {
  std::vector<double> sum;
  AppendStopVotes(SIGINT, sum);
  std::vector<double> other;
  AppendStopVotes(SIGTERM, other);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
  EXPECT_EQ(CountStopVotes(sum), SIGINT);
}

}  // namespace
}  // namespace zerod::train
