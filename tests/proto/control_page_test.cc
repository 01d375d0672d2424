#include "proto/contract/control_page.h"

#include <new>

#include <gtest/gtest.h>

#include "proto/contract/shared_memory.h"
#include "tests/proto/child_process.h"

namespace zerod {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

class ControlPageTest : public testing::Test {
 protected:
  static steady_clock::time_point Soon() { return steady_clock::now() + seconds(30); }

  SharedMemory memory_ = SharedMemory::Create("zerod-control-test", kControlPageBytes);
  ControlPage& page_ = *new (memory_.data()) ControlPage;
};

TEST_F(ControlPageTest, NoWakeUpIsLostBetweenTwoProcesses) {
  constexpr uint64_t kTickets = 100'000;
  ChildProcess echo([this] {
    for (uint64_t ticket = 1; ticket <= kTickets; ++ticket) {
      if (WaitFor(page_, Queue::kGather, ticket, Soon()) != WaitResult::kDone) return 1;
      Complete(page_, Queue::kReduce, ticket);
    }
    return 0;
  });
  for (uint64_t ticket = 1; ticket <= kTickets; ++ticket) {
    Complete(page_, Queue::kGather, ticket);
    ASSERT_EQ(WaitFor(page_, Queue::kReduce, ticket, Soon()), WaitResult::kDone) << ticket;
  }
  EXPECT_EQ(echo.Wait(), 0);
}

TEST_F(ControlPageTest, ResultsStoredBeforeTheCounterAreSeenAfterIt) {
  constexpr uint64_t kSteps = 10'000;
  ChildProcess reader([this] {
    for (uint64_t ticket = 1; ticket <= kSteps; ++ticket) {
      if (WaitFor(page_, Queue::kStep, ticket, Soon()) != WaitResult::kDone) return 1;
      const StepRecord seen = page_.step;
      if (seen.ticket != ticket || seen.grad_norm != 0.5 * static_cast<double>(ticket)) return 2;
      Complete(page_, Queue::kData, ticket);
    }
    return 0;
  });
  for (uint64_t ticket = 1; ticket <= kSteps; ++ticket) {
    page_.step.ticket = ticket;
    page_.step.grad_norm = 0.5 * static_cast<double>(ticket);
    Complete(page_, Queue::kStep, ticket);
    ASSERT_EQ(WaitFor(page_, Queue::kData, ticket, Soon()), WaitResult::kDone);
  }
  EXPECT_EQ(reader.Wait(), 0);
}

TEST_F(ControlPageTest, AbortWakesAWaiterInAnotherProcess) {
  for (int round = 0; round < 200; ++round) {
    new (memory_.data()) ControlPage;
    ChildProcess waiter([this] {
      Complete(page_, Queue::kData, 1);
      return static_cast<int>(WaitFor(page_, Queue::kGather, 1, Soon()));
    });
    ASSERT_EQ(WaitFor(page_, Queue::kData, 1, Soon()), WaitResult::kDone);
    Abort(page_);
    ASSERT_EQ(waiter.Wait(), static_cast<int>(WaitResult::kAborted)) << round;
  }
}

TEST_F(ControlPageTest, AWaitEndsAtItsDeadlineAlthoughTheDoorbellRings) {
  const auto start = steady_clock::now();
  ChildProcess ringer([this, start] {
    while (steady_clock::now() < start + milliseconds(200)) Ring(page_);
    return 0;
  });
  EXPECT_EQ(WaitFor(page_, Queue::kScalar, 1, start + milliseconds(50)), WaitResult::kTimedOut);
  EXPECT_GE(steady_clock::now(), start + milliseconds(50));
  EXPECT_EQ(ringer.Wait(), 0);
}

TEST_F(ControlPageTest, CompletedWinsOverAborted) {
  Complete(page_, Queue::kReduce, 7);
  Abort(page_);
  EXPECT_EQ(WaitFor(page_, Queue::kReduce, 7, Soon()), WaitResult::kDone);
  EXPECT_EQ(WaitFor(page_, Queue::kReduce, 8, Soon()), WaitResult::kAborted);
}

TEST_F(ControlPageTest, CompletedWinsOverADeadlineThatHasPassed) {
  Complete(page_, Queue::kGather, 3);
  const auto past = steady_clock::now() - seconds(1);
  EXPECT_EQ(WaitFor(page_, Queue::kGather, 3, past), WaitResult::kDone);
  EXPECT_EQ(WaitFor(page_, Queue::kGather, 4, past), WaitResult::kTimedOut);
}

TEST_F(ControlPageTest, QueuesDoNotCompleteEachOther) {
  Complete(page_, Queue::kGather, 5);
  EXPECT_EQ(WaitFor(page_, Queue::kReduce, 5, steady_clock::now()), WaitResult::kTimedOut);
}

}  // namespace
}  // namespace zerod
