#include "server/cluster/peer_messages.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zerod {
namespace {

template <typename Body>
Body RoundTrip(const Body& body) {
  std::string wire;
  EXPECT_TRUE(ToMessage({.epoch = 42, .body = body}).SerializeToString(&wire));
  v1::PeerMessage message;
  EXPECT_TRUE(message.ParseFromString(wire));
  const PeerMessage result = FromMessage(message);
  EXPECT_EQ(result.epoch, 42u);
  return std::get<Body>(result.body);
}

std::string FailureOf(const v1::PeerMessage& message) {
  try {
    FromMessage(message);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "none";
}

constexpr uint64_t kLargest = std::numeric_limits<uint64_t>::max();

TEST(PeerMessagesTest, AProposalTravelsWhole) {
  const Proposal sent{.number = 9,
                      .job_id = std::string("a\0b", 3),
                      .mode = 2,
                      .exists = true,
                      .plan_hash = kLargest,
                      .step = 9,
                      .epoch_seen = 8,
                      .window_bytes = int64_t{1} << 62,
                      .cache_bytes = 7,
                      .gradient_slots = 3,
                      .tensor_parallel = 4,
                      .withdrawn = true,
                      .reason = "rank 2 left"};
  const Proposal got = RoundTrip(sent);
  EXPECT_EQ(got.job_id, sent.job_id);
  EXPECT_EQ(got.mode, 2);
  EXPECT_TRUE(got.exists);
  EXPECT_EQ(got.plan_hash, kLargest);
  EXPECT_EQ(got.step, 9u);
  EXPECT_EQ(got.epoch_seen, 8u);
  EXPECT_EQ(got.window_bytes, int64_t{1} << 62);
  EXPECT_EQ(got.cache_bytes, 7);
  EXPECT_EQ(got.gradient_slots, 3);
  EXPECT_EQ(got.tensor_parallel, 4);
  EXPECT_TRUE(got.withdrawn);
  EXPECT_EQ(got.number, 9u);
  EXPECT_EQ(got.reason, "rank 2 left");
}

TEST(PeerMessagesTest, ADecisionTravelsWhole) {
  const Decision got = RoundTrip(Decision{.numbers = {3, kLargest},
                                          .job_id = "job",
                                          .accepted = true,
                                          .created = true,
                                          .new_epoch = kLargest,
                                          .code = ErrorCode::kInternal,
                                          .message = "why"});
  EXPECT_EQ(got.numbers, (std::vector<uint64_t>{3, kLargest}));
  EXPECT_EQ(got.job_id, "job");
  EXPECT_TRUE(got.accepted && got.created);
  EXPECT_EQ(got.new_epoch, kLargest);
  EXPECT_EQ(got.code, ErrorCode::kInternal);
  EXPECT_EQ(got.message, "why");
}

TEST(PeerMessagesTest, AStoreEntryKeepsEveryByte) {
  std::string value;
  for (int byte = 0; byte < 256; ++byte) value.push_back(static_cast<char>(byte));
  const StoreEntry got = RoundTrip(StoreEntry{.key = "gather/1", .value = value});
  EXPECT_EQ(got.key, "gather/1");
  EXPECT_EQ(got.value, value);
}

TEST(PeerMessagesTest, ProgressTravelsWhole) {
  const RankedFingerprint item{.fingerprint = {.ticket = 5,
                                               .kind = OperationKind::kStep,
                                               .layer = -1,
                                               .version = 3,
                                               .arguments_hash = kLargest,
                                               .arguments = {{"a\xff", "1"}, {"", "2"}}},
                               .rank = 6};
  const Progress got = RoundTrip(Progress{.fingerprints = {item, item}, .last_tickets = {5, 0}});
  ASSERT_EQ(got.fingerprints.size(), 2u);
  EXPECT_EQ(got.fingerprints[1].fingerprint, item.fingerprint);
  EXPECT_EQ(got.fingerprints[1].rank, 6);
  EXPECT_THAT(got.last_tickets, ::testing::ElementsAre(5u, 0u));
}

TEST(PeerMessagesTest, AStepKeepsBitsAndInfinities) {
  const double infinity = std::numeric_limits<double>::infinity();
  const StepContribution got =
      RoundTrip(StepContribution{.ticket = 9,
                                 .sum_squares = {infinity, -0.0},
                                 .values = {1.5, std::nan(""), 5e-324, 2},
                                 .active = {{0, {}}, {4095, {true, false, true}}}});
  EXPECT_EQ(got.ticket, 9u);
  EXPECT_EQ(got.sum_squares[0], infinity);
  EXPECT_TRUE(std::signbit(got.sum_squares[1]));
  EXPECT_TRUE(std::isnan(got.values[1]));
  EXPECT_EQ(got.values[2], 5e-324);
  ASSERT_EQ(got.active.size(), 2u);
  EXPECT_TRUE(got.active[0].second.empty());
  EXPECT_EQ(got.active[1].first, 4095);
  EXPECT_EQ(got.active[1].second, (std::vector<bool>{true, false, true}));
}

TEST(PeerMessagesTest, ScalarAbortAndEndTravelWhole) {
  EXPECT_THAT(RoundTrip(ScalarContribution{.ticket = 1, .values = {0.1, 0.2}}).values,
              ::testing::ElementsAre(0.1, 0.2));
  const AbortNotice notice = RoundTrip(AbortNotice{
      .horizon_ticket = kLargest, .code = ErrorCode::kUnavailable, .message = "node 1 is lost"});
  EXPECT_EQ(notice.horizon_ticket, kLargest);
  EXPECT_EQ(notice.code, ErrorCode::kUnavailable);
  EXPECT_EQ(notice.message, "node 1 is lost");
  EXPECT_TRUE(RoundTrip(EndNotice{.drop = true}).drop);
}

TEST(PeerMessagesTest, HostileProposalsAreRefused) {
  v1::PeerMessage message = ToMessage({.epoch = 1, .body = Proposal{}});
  EXPECT_EQ(FailureOf(message), "none");
  const auto with = [&message](auto change) {
    v1::PeerMessage changed = message;
    change(*changed.mutable_proposal());
    return FailureOf(changed);
  };
  EXPECT_EQ(with([](auto& p) { p.set_mode(0); }), "unknown attach mode 0");
  EXPECT_EQ(with([](auto& p) { p.set_mode(4); }), "unknown attach mode 4");
  EXPECT_EQ(with([](auto& p) { p.set_window_bytes(-1); }), "the window is -1");
  EXPECT_EQ(with([](auto& p) { p.set_gradient_slots(-1); }), "the number of gradient slots is -1");
  EXPECT_EQ(with([](auto& p) { p.set_tensor_parallel(0); }), "the tensor-parallel degree is 0");
  EXPECT_NE(with([](auto& p) { p.set_job_id(std::string(70'000, 'x')); }), "none");
}

TEST(PeerMessagesTest, HostileStepsAreRefused) {
  v1::PeerMessage message;
  v1::StepContribution& step = *message.mutable_step();
  EXPECT_EQ(FailureOf(message), "the contribution to step 0 has no sums of squares");
  step.add_sum_squares(1);
  step.add_sum_squares(1);
  step.add_values(1);
  EXPECT_EQ(FailureOf(message), "the contribution to step 0 has 1 values of 2 ranks");
  step.add_values(2);
  EXPECT_EQ(FailureOf(message), "none");
  step.add_active_layers(3);
  EXPECT_EQ(FailureOf(message),
            "the contribution to step 0 names 1 active layers and tensors of 0");
  step.add_active_tensors("\2");
  EXPECT_EQ(FailureOf(message), "active tensor 0 of layer 3 is 2");
  step.set_active_tensors(0, "\1");
  EXPECT_EQ(FailureOf(message), "none");
  step.set_active_layers(0, 4'000'000'000u);
  EXPECT_EQ(FailureOf(message), "active layer 4000000000");
}

TEST(PeerMessagesTest, HostileValuesElsewhereAreRefused) {
  v1::PeerMessage message;
  EXPECT_NE(FailureOf(message), "none");
  message.mutable_hello();
  EXPECT_NE(FailureOf(message), "none");
  message.mutable_decision()->set_code(10);
  EXPECT_EQ(FailureOf(message), "unknown error code 10");
  message.mutable_abort()->set_code(4'000'000'000u);
  EXPECT_EQ(FailureOf(message), "unknown error code 4000000000");
  message.mutable_store_entry();
  EXPECT_EQ(FailureOf(message), "a store entry has no key");
  v1::Fingerprint& item = *message.mutable_progress()->add_fingerprints();
  EXPECT_EQ(FailureOf(message), "unknown operation kind 0 of ticket 0");
  item.set_kind(11);
  EXPECT_EQ(FailureOf(message), "unknown operation kind 11 of ticket 0");
  item.set_kind(3);
  item.set_layer(-2);
  EXPECT_EQ(FailureOf(message), "layer -2 of ticket 0");
  item.set_layer(4095);
  item.add_arguments()->set_value(std::string(70'000, 'x'));
  EXPECT_THAT(FailureOf(message), ::testing::StartsWith("an argument has 70000 bytes"));
  item.clear_arguments();
  item.set_rank(-1);
  EXPECT_EQ(FailureOf(message), "the rank of a fingerprint is -1");
}

}  // namespace
}  // namespace zerod
