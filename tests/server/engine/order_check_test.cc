#include "server/engine/order_check.h"

#include <gmock/gmock.h>

#include "proto/contract/error.h"

namespace zerod {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr OrderCheck::Clock::time_point kStart{};

Fingerprint Gather(uint64_t ticket, int layer, uint64_t version = 0) {
  return {.ticket = ticket, .kind = OperationKind::kGather, .layer = layer, .version = version};
}

std::string Describe(const Fingerprint& f) {
  return Concat(OperationKindName(f.kind), " of layer ", f.layer);
}

TEST(OrderCheckTest, EqualSequencesAreComparedUpToTheSlowestRank) {
  OrderCheck order(3, Describe);
  for (uint64_t ticket = 1; ticket <= 5; ++ticket) {
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_FALSE(order.Record(rank, Gather(ticket, 2), kStart));
    }
  }
  order.Advance(0, 5);
  order.Advance(1, 3);
  EXPECT_EQ(order.compared(), 0u);
  order.Advance(2, 4);
  EXPECT_EQ(order.compared(), 3u);
  order.Advance(2, 1);  // nothing goes back
  EXPECT_EQ(order.last_ticket(2), 4u);
}

TEST(OrderCheckTest, ADifferenceNamesRanksTicketAndBothOperations) {
  OrderCheck order(2, Describe);
  EXPECT_FALSE(order.Record(0, Gather(1, 2), kStart));
  Fingerprint reduce = Gather(1, 4);
  reduce.kind = OperationKind::kReduce;
  EXPECT_THAT(order.Record(1, reduce, kStart).value_or(""),
              HasSubstr("the ranks diverge at operation 1: rank 0 submitted gather of layer 2, "
                        "rank 1 submitted reduce of layer 4"));
}

TEST(OrderCheckTest, ADifferenceInVersionOrArgumentsIsNamed) {
  OrderCheck order(2, Describe);
  EXPECT_FALSE(order.Record(0, Gather(1, 2, 7), kStart));
  EXPECT_THAT(order.Record(1, Gather(1, 2, 8), kStart).value_or(""),
              HasSubstr("(versions 7 and 8)"));
  Fingerprint other = Gather(1, 2, 7);
  other.arguments_hash = 1;
  EXPECT_THAT(order.Record(1, other, kStart).value_or(""), HasSubstr("(with other arguments)"));
  Fingerprint step = other;
  step.ticket = 2;
  step.arguments = {{"rate", "1"}, {"decay", "2"}};
  EXPECT_FALSE(order.Record(0, step, kStart));
  Fingerprint silent = step;
  silent.arguments.clear();
  EXPECT_FALSE(order.Record(1, silent, kStart));
  step.arguments_hash = 2;
  step.arguments[1].value = "3";
  EXPECT_THAT(order.Record(1, step, kStart).value_or(""), HasSubstr("(decay 2 and 3)"));
}

TEST(OrderCheckTest, TheOldestTicketThatSomebodyLacksIsLate) {
  OrderCheck order(3, Describe);
  EXPECT_FALSE(order.FindLate(kStart));
  for (int rank : {1, 2}) {
    EXPECT_FALSE(order.Record(rank, Gather(1, 6), kStart + seconds(rank)));
    order.Advance(rank, 1);
  }
  const auto late = order.FindLate(kStart + seconds(9));
  ASSERT_TRUE(late);
  EXPECT_THAT(late->ranks, ElementsAre(0));
  EXPECT_EQ(late->waiting_rank, 1);
  EXPECT_EQ(late->ticket, 1u);
  EXPECT_EQ(late->operation, "gather of layer 6");
  EXPECT_EQ(late->waited, seconds(8));
  EXPECT_FALSE(order.Record(0, Gather(1, 6), kStart));
  order.Advance(0, 1);
  EXPECT_FALSE(order.FindLate(kStart + seconds(9)));
}

TEST(OrderCheckTest, APauseOfTheWatcherMakesNobodyLate) {
  OrderCheck order(2, Describe);
  EXPECT_FALSE(order.Record(0, Gather(1, 6), kStart));
  order.Advance(0, 1);
  order.Excuse(seconds(30));
  const auto late = order.FindLate(kStart + seconds(31));
  ASSERT_TRUE(late);
  EXPECT_EQ(late->waited, seconds(1));
}

TEST(OrderCheckTest, ARepeatedTicketThatIsComparedIsNoDifference) {
  OrderCheck order(1, Describe);
  EXPECT_FALSE(order.Record(0, Gather(1, 2), kStart));
  order.Advance(0, 1);
  EXPECT_FALSE(order.Record(0, Gather(1, 3), kStart));
}

}  // namespace
}  // namespace zerod
