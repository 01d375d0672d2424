#include "server/engine/lane.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace zerod {
namespace {

TEST(LaneTest, RunsTasksInTheOrderPostedOnOneThread) {
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  {
    Lane lane("test-lane");
    for (int i = 0; i < 1000; ++i) {
      lane.Post([&, i] {
        order.push_back(i);
        threads.push_back(std::this_thread::get_id());
      });
    }
  }  // the destructor runs what is queued
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[i], i);
  for (const std::thread::id& id : threads) EXPECT_EQ(id, threads[0]);
  EXPECT_NE(threads[0], std::this_thread::get_id());
}

TEST(LaneTest, ATaskMayPostToItsOwnLane) {
  std::atomic<int> runs = 0;
  {
    Lane lane("test-lane");
    lane.Post([&] { lane.Post([&] { ++runs; }); });
  }
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace zerod
