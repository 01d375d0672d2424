#include "client/session.h"

#include <filesystem>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "proto/contract/descriptor.h"
#include "tests/client/small_daemon.h"

namespace zerod {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename Body>
Error ErrorOf(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::kInternal, "");
}

Operation Of(OperationKind kind, int layer = -1) {
  Operation operation;
  operation.kind = kind;
  operation.layer = layer;
  return operation;
}

LayerSpec Linear() { return {.name = "linear", .tensors = {{.name = "weight", .shape = {2, 3}}}}; }

class SessionTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/zs-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    options_.socket_path = folder_ + "/s";
    options_.connect_timeout = milliseconds(5000);
    options_.join_timeout = milliseconds(5000);
  }
  void TearDown() override {
    daemon_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Start(SmallDaemon::Script script = {}) {
    daemon_ = std::make_unique<SmallDaemon>(options_.socket_path, std::move(script));
  }
  Error ErrorOfConnect() {
    return ErrorOf([this] { Session::Connect(options_); });
  }

  std::string folder_;
  SessionOptions options_;
  std::unique_ptr<SmallDaemon> daemon_;
};

TEST_F(SessionTest, TellsWhoItIsAndLearnsWhatItAttachedTo) {
  Start({.private_state = std::string("\0\xff position", 11)});
  options_.job_id = "neox";
  options_.mode = AttachMode::kAttach;
  options_.program = "session_test";
  options_.window_bytes = 1 << 20;
  const auto session = Session::Connect(options_);
  const v1::Hello hello = daemon_->hello();
  EXPECT_EQ(hello.protocol_version(), kProtocolVersion);
  EXPECT_EQ(hello.job_id(), "neox");
  EXPECT_EQ(hello.mode(), v1::ATTACH_MODE_ATTACH);
  EXPECT_EQ(hello.program(), "session_test");
  EXPECT_EQ(hello.pid(), getpid());
  EXPECT_EQ(hello.window_bytes(), 1 << 20);
  EXPECT_EQ(hello.cache_bytes(), -1);
  const SessionInfo& info = session->info();
  EXPECT_EQ(info.epoch, 5u);
  EXPECT_EQ(info.job_id, "neox");
  EXPECT_FALSE(info.created);
  EXPECT_EQ(info.step, 12u);
  EXPECT_EQ(info.mesh, (Mesh{1, 1}));
  EXPECT_EQ(info.private_state, std::string("\0\xff position", 11));
}

TEST_F(SessionTest, TicketsAreContiguousAndArriveInOrder) {
  Start();
  const auto session = Session::Connect(options_);
  for (uint64_t ticket = 1; ticket <= 1000; ++ticket) {
    ASSERT_EQ(session->Submit(Of(OperationKind::kGather, 0)), ticket);
    if (ticket % 3 == 0) session->Flush();
  }
  session->Wait(Queue::kGather, 1000, "last gather");
  EXPECT_TRUE(session->IsComplete(Queue::kGather, 1000));
  EXPECT_FALSE(session->IsComplete(Queue::kGather, 1001));
  const auto operations = daemon_->operations();
  ASSERT_EQ(operations.size(), 1000u);
  for (size_t i = 0; i < operations.size(); ++i) ASSERT_EQ(operations[i].ticket(), i + 1);
}

TEST_F(SessionTest, RegistersSealsStepsAndSums) {
  Start();
  const auto session = Session::Connect(options_);
  EXPECT_EQ(session->Register(Linear()).spec, Linear());
  const LayerPlan plan = session->Register(Linear());
  EXPECT_EQ(plan.slot_bytes, SmallDaemon::kSlotBytes);
  EXPECT_EQ(daemon_->operations().back().layer(), 1);
  session->Seal();

  Operation step = Of(OperationKind::kStep);
  step.step.beta1 = 0.25;
  step.private_state.assign(16 << 20, 'p');
  const uint64_t ticket = session->Submit(step);
  session->Wait(Queue::kStep, ticket, "step");
  EXPECT_EQ(session->step_record().ticket, ticket);
  EXPECT_EQ(session->step_record().grad_norm, 0.25);

  Operation scalar = Of(OperationKind::kScalar);
  scalar.values = {1.5, -2.0};
  session->Wait(Queue::kScalar, session->Submit(scalar), "sum");
  EXPECT_THAT(session->scalar_values(2), ElementsAre(1.5, -2.0));
}

TEST_F(SessionTest, MapsMemoryOfTheAttach) {
  Start();
  const auto session = Session::Connect(options_);
  const Mapping region = session->MapRegion(7, 0, 4 * SmallDaemon::kChunkNumel);
  EXPECT_EQ(region.data()[kRegionHeaderBytes], std::byte{7});
  EXPECT_EQ(session->MapSlot(1).size_bytes(), static_cast<size_t>(SmallDaemon::kSlotBytes));
  const Error wrong_size = ErrorOf([&] { session->MapRegion(7, 0, 4096 + 64); });
  EXPECT_EQ(wrong_size.code(), ErrorCode::kDataLoss);
  const Error refused = ErrorOf([&] { session->MapSlot(2); });
  EXPECT_STREQ(refused.what(), "there is no such memory");
  EXPECT_EQ(session->MapSlot(0).size_bytes(), static_cast<size_t>(SmallDaemon::kSlotBytes));
}

TEST_F(SessionTest, AnOperationThatTheDaemonWouldRefuseFailsAlone) {
  Start();
  const auto session = Session::Connect(options_);
  Operation step = Of(OperationKind::kStep);
  step.private_state.assign((16 << 20) + 1, 'p');
  EXPECT_EQ(ErrorOf([&] { session->Submit(step); }).code(), ErrorCode::kInvalidArgument);
  LayerSpec unnamed = Linear();
  unnamed.name = "";
  EXPECT_EQ(ErrorOf([&] { session->Register(unnamed); }).code(), ErrorCode::kInvalidArgument);
  step.private_state.clear();
  EXPECT_EQ(session->Submit(step), 1u);
  session->Wait(Queue::kStep, 1, "step");
}

TEST_F(SessionTest, WarningsReachTheHandler) {
  Start({.warnings = {"rank 2 is late", "rank 2 is later"}});
  std::vector<std::string> warnings;
  options_.on_warning = [&](const std::string& text) { warnings.push_back(text); };
  const auto session = Session::Connect(options_);
  EXPECT_THAT(warnings, ElementsAre("rank 2 is late", "rank 2 is later"));
}

TEST_F(SessionTest, ARefusalIsThrownAsTheDaemonSaidIt) {
  Start({.refusal = Error(ErrorCode::kAlreadyExists, "rank 0 is taken by pid 77")});
  const Error error = ErrorOfConnect();
  EXPECT_EQ(error.code(), ErrorCode::kAlreadyExists);
  EXPECT_STREQ(error.what(), "rank 0 is taken by pid 77");
}

TEST_F(SessionTest, NoDaemonIsNamedWithItsPathAndTheWayToStartOne) {
  options_.connect_timeout = milliseconds(200);
  const auto start = steady_clock::now();
  const Error error = ErrorOfConnect();
  EXPECT_LT(steady_clock::now() - start, seconds(5));
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
  EXPECT_EQ(ExitCode(error.code()), 3);
  EXPECT_THAT(error.what(), HasSubstr("zerod --socket " + options_.socket_path));
  EXPECT_THAT(error.what(), HasSubstr("No such file or directory"));
}

TEST_F(SessionTest, ADaemonThatStartsLaterIsFound) {
  auto session = std::async(std::launch::async, [this] { return Session::Connect(options_); });
  ASSERT_EQ(session.wait_for(milliseconds(300)), std::future_status::timeout);
  Start();
  EXPECT_EQ(session.get()->info().epoch, 5u);
}

TEST_F(SessionTest, WhatListensButIsNoDaemonIsUnavailable) {
  const FileDescriptor mute = ListenUnix(options_.socket_path);
  options_.connect_timeout = milliseconds(200);
  const Error error = ErrorOfConnect();
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
  EXPECT_THAT(error.what(), HasSubstr("isn't a zerod"));
}

TEST_F(SessionTest, ASilentDaemonEndsTheJoinAtItsDeadline) {
  Start({.welcomes = false});
  options_.join_timeout = milliseconds(100);
  const Error error = ErrorOfConnect();
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(error.what(), HasSubstr("rank 0"));
}

TEST_F(SessionTest, AControlPageOfAnotherEpochIsRefused) {
  Start({.page_epoch = 4});
  EXPECT_EQ(ErrorOfConnect().code(), ErrorCode::kFailedPrecondition);
}

TEST_F(SessionTest, AFaultWakesAWaiterAndStaysTheReason) {
  Start({.held = OperationKind::kGather});
  const auto session = Session::Connect(options_);
  const uint64_t ticket = session->Submit(Of(OperationKind::kGather, 0));
  auto waiter = std::async(std::launch::async, [&] {
    return ErrorOf([&] { session->Wait(Queue::kGather, ticket, "gather of layer linear"); });
  });
  session->Wait(Queue::kScalar, session->Submit(Of(OperationKind::kScalar)), "sum");
  daemon_->SendFault(Error(ErrorCode::kAborted, "rank 3 on node 1 is gone"));
  const Error error = waiter.get();
  EXPECT_EQ(error.code(), ErrorCode::kAborted);
  EXPECT_STREQ(error.what(), "rank 3 on node 1 is gone");
  daemon_->Die();
  const auto submit = [&] { session->Submit(Of(OperationKind::kGather, 0)); };
  for (const Error& later :
       {ErrorOf(submit), ErrorOf([&] { session->ThrowIfAborted(); }),
        ErrorOf([&] { session->MapSlot(0); }), ErrorOf([&] { session->Register(Linear()); }),
        ErrorOf([&] { session->Detach(false); })}) {
    EXPECT_STREQ(later.what(), "rank 3 on node 1 is gone");
  }
}

TEST_F(SessionTest, ADaemonThatDiesWakesAWaiter) {
  Start({.held = OperationKind::kStep});
  const auto session = Session::Connect(options_);
  const uint64_t ticket = session->Submit(Of(OperationKind::kStep));
  auto waiter = std::async(std::launch::async, [&] {
    return ErrorOf([&] { session->Wait(Queue::kStep, ticket, "step"); });
  });
  session->Wait(Queue::kScalar, session->Submit(Of(OperationKind::kScalar)), "sum");
  const auto start = steady_clock::now();
  daemon_->Die();
  waiter.get();
  EXPECT_LT(steady_clock::now() - start, seconds(5));
}

TEST_F(SessionTest, DetachSaysWhetherToDropAndEndsTheSession) {
  Start();
  const auto session = Session::Connect(options_);
  session->Detach(true);
  EXPECT_TRUE(daemon_->dropped());
  const auto submit = [&] { session->Submit(Of(OperationKind::kScalar)); };
  EXPECT_EQ(ErrorOf(submit).code(), ErrorCode::kFailedPrecondition);
}

TEST_F(SessionTest, WhatWasQueuedArrivesBeforeTheDetach) {
  Start();
  const auto session = Session::Connect(options_);
  session->Submit(Of(OperationKind::kRelease, 0));
  session->Detach(false);
  EXPECT_EQ(daemon_->operations().size(), 1u);
}

TEST_F(SessionTest, ClosingWithoutDetachIsQuick) {
  Start({.held = OperationKind::kGather});
  auto session = Session::Connect(options_);
  session->Submit(Of(OperationKind::kGather, 0));
  session->Flush();
  const auto start = steady_clock::now();
  session.reset();
  EXPECT_LT(steady_clock::now() - start, seconds(5));
}

}  // namespace
}  // namespace zerod
