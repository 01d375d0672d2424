#include "server/rpc/worker_session.h"

#include <cstring>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/control_page.h"
#include "proto/contract/convert.h"
#include "tests/server/rpc/served_engine.h"

namespace zerod {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

v1::WorkerMessage SubmitOf(int count) {
  v1::WorkerMessage message;
  for (int i = 0; i < count; ++i) {
    v1::Operation& operation = *message.mutable_submit()->add_operations();
    operation.set_ticket(static_cast<uint64_t>(i) + 1);
    operation.set_kind(static_cast<uint32_t>(OperationKind::kScalar));
    operation.add_values(1.0);
  }
  return message;
}

v1::WorkerMessage DetachMessage() {
  v1::WorkerMessage message;
  message.mutable_detach();
  return message;
}

TEST(WorkerSession, AttachesAndDetachesAWorker) {
  ServedEngine served(1);
  RawWorker worker(served.UnixChannel());
  const v1::DaemonMessage welcome = worker.Attach(0, 1);
  ASSERT_TRUE(welcome.has_welcome()) << welcome.ShortDebugString();
  EXPECT_EQ(welcome.welcome().job_id(), "job");
  EXPECT_EQ(welcome.welcome().dp(), 1);
  EXPECT_GT(welcome.epoch(), 0u);
  EXPECT_EQ(served.engine().Sessions().size(), 1u);
  worker.Send(DetachMessage());
  EXPECT_TRUE(worker.Receive().has_detached());
  EXPECT_TRUE(worker.Finish().ok());
  EXPECT_TRUE(served.AwaitSessions(0));
}

TEST(WorkerSession, HandsOutTheControlPageOfItsWelcome) {
  ServedEngine served(1);
  RawWorker worker(served.UnixChannel());
  const v1::DaemonMessage welcome = worker.Attach(0, 1);
  ASSERT_TRUE(welcome.has_welcome());
  const FileDescriptor socket = ConnectUnix(DescriptorSocketPath(served.socket_path()));
  SendRequest(socket.get(), {.token = welcome.welcome().token()}, 5000);
  FileDescriptor fd;
  const DescriptorReply reply = ReceiveReply(socket.get(), fd, 5000);
  ASSERT_EQ(reply.error, "");
  const Mapping mapping = MapShared(fd, reply.size_bytes, Access::kReadWrite);
  const auto& page = *reinterpret_cast<const ControlPage*>(mapping.data());
  EXPECT_EQ(page.magic, ControlPage::kMagic);
  EXPECT_EQ(page.epoch, welcome.epoch());
}

TEST(WorkerSession, AnswersARegistrationWithItsPlan) {
  ServedEngine served(1);
  RawWorker worker(served.UnixChannel());
  ASSERT_TRUE(worker.Attach(0, 1).has_welcome());
  Operation operation;
  operation.ticket = 1;
  operation.kind = OperationKind::kRegister;
  operation.layer = 0;
  operation.layer_spec = {.name = "linear", .tensors = {{.name = "w", .shape = {3, 5}}}};
  v1::WorkerMessage message;
  ToMessage(operation, *message.mutable_submit()->add_operations());
  worker.Send(message);
  const v1::DaemonMessage answer = worker.Receive();
  ASSERT_TRUE(answer.has_plan()) << answer.ShortDebugString();
  EXPECT_EQ(answer.plan().ticket(), 1u);
  EXPECT_EQ(answer.plan().layer(), 0);
  EXPECT_EQ(FromMessage(answer.plan(), operation.layer_spec).tensors[0].numel, 15);
}

struct BadHello {
  const char* field;
  std::function<void(v1::Hello&)> spoil;
  std::vector<std::string> parts;
};

TEST(WorkerSession, RefusesABadHelloNamingTheField) {
  ServedEngine served(1);
  const std::vector<BadHello> cases = {
      {"version",
       [](auto& hello) { hello.set_protocol_version(7); },
       {"protocol version 1", "version 7"}},
      {"job", [](auto& hello) { hello.set_job_id("a/b"); }, {"job id"}},
      {"mode", [](auto& hello) { hello.clear_mode(); }, {"attach mode 0"}},
      {"rank", [](auto& hello) { hello.set_rank(1); }, {"rank 1", "world size is 1"}},
      {"negative", [](auto& hello) { hello.set_rank(-1); }, {"rank -1"}},
      {"world", [](auto& hello) { hello.set_world_size(0); }, {"world size 0"}},
      {"other world", [](auto& hello) { hello.set_world_size(2); }, {"WORLD_SIZE is 2"}},
      {"tp", [](auto& hello) { hello.set_tensor_parallel(2); }, {"tensor_parallel 2"}},
      {"slots", [](auto& hello) { hello.set_gradient_slots(0); }, {"gradient_slots 0"}},
      {"window", [](auto& hello) { hello.set_window_bytes(-4); }, {"window_bytes -4"}},
  };
  for (const BadHello& bad : cases) {
    RawWorker worker(served.UnixChannel());
    v1::Hello hello = RawWorker::GoodHello(0, 1);
    bad.spoil(hello);
    worker.SendHello(hello);
    const std::string fault = worker.ReceiveFault();
    for (const std::string& part : bad.parts) EXPECT_THAT(fault, HasSubstr(part)) << bad.field;
    EXPECT_TRUE(worker.Finish().ok());
  }
  EXPECT_TRUE(served.AwaitSessions(0));
}

struct BadMessage {
  const char* name;
  std::function<void(RawWorker&)> send;
  const char* part;
};

TEST(WorkerSession, EndsAWorkerThatBreaksTheRulesAndServesTheNext) {
  ServedEngine served(1);
  const std::vector<BadMessage> cases = {
      {"second Hello", [](auto& worker) { worker.SendHello(RawWorker::GoodHello(0, 1)); },
       "second Hello"},
      {"empty message", [](auto& worker) { worker.Send({}); }, "neither Hello nor Submit"},
      {"old epoch",
       [](auto& worker) {
         --worker.epoch;
         worker.Send(SubmitOf(1));
       },
       "this attach has epoch"},
      {"unknown kind",
       [](auto& worker) {
         v1::WorkerMessage message = SubmitOf(1);
         message.mutable_submit()->mutable_operations(0)->set_kind(99);
         worker.Send(message);
       },
       "99"},
      {"too many operations",
       [](auto& worker) { worker.Send(SubmitOf(WorkerSession::kOperationsMax + 1)); },
       "at most 4096"},
      {"too many bytes",
       [](auto& worker) {
         v1::WorkerMessage message = SubmitOf(1);
         message.mutable_submit()->mutable_operations(0)->set_private_state(
             std::string(WorkerSession::kMessageBytesMax + 1, 'x'));
         worker.Send(message);
       },
       "at most 33554432"},
      {"message after Detach",
       [](auto& worker) {
         worker.Send(DetachMessage());
         worker.Send(SubmitOf(1));
       },
       "after Detach"},
  };
  for (const BadMessage& bad : cases) {
    RawWorker worker(served.UnixChannel());
    const v1::DaemonMessage welcome = worker.Attach(0, 1);
    ASSERT_TRUE(welcome.has_welcome()) << bad.name << ": " << welcome.ShortDebugString();
    bad.send(worker);
    const v1::DaemonMessage answer = worker.Receive();
    EXPECT_TRUE(answer.has_fault() || answer.has_detached()) << bad.name;
    if (answer.has_fault()) {
      EXPECT_THAT(answer.fault().message(), HasSubstr(bad.part)) << bad.name;
    }
    EXPECT_TRUE(worker.Finish().ok()) << bad.name;
    EXPECT_TRUE(served.AwaitSessions(0)) << bad.name;
  }
}

TEST(WorkerSession, RefusesASubmitBeforeTheWelcome) {
  ServedEngine served(2);
  RawWorker silent(served.UnixChannel());
  silent.Send(SubmitOf(1));
  EXPECT_THAT(silent.ReceiveFault(), HasSubstr("before the Welcome"));
  RawWorker early(served.UnixChannel());
  early.SendHello(RawWorker::GoodHello(0, 2));  // rank 1 never comes, so no Welcome does
  early.Send(SubmitOf(1));
  EXPECT_THAT(early.ReceiveFault(), HasSubstr("before the Welcome"));
  EXPECT_TRUE(served.AwaitSessions(0));
}

TEST(WorkerSession, RefusesARankThatIsTakenNamingItsProcess) {
  ServedEngine served(1);
  RawWorker first(served.UnixChannel());
  ASSERT_TRUE(first.Attach(0, 1).has_welcome());
  RawWorker second(served.UnixChannel());
  second.SendHello(RawWorker::GoodHello(0, 1));
  EXPECT_THAT(second.ReceiveFault(),
              AllOf(HasSubstr("rank 0"), HasSubstr(std::to_string(getpid()))));
  first.Send(DetachMessage());
  EXPECT_TRUE(first.Receive().has_detached());
}

TEST(WorkerSession, ServesHundredsOfRanks) {
  constexpr int kRanks = 256;
  ServedEngine served(kRanks);
  std::vector<std::unique_ptr<RawWorker>> workers;
  for (int rank = 0; rank < kRanks; ++rank) {
    workers.push_back(std::make_unique<RawWorker>(served.UnixChannel()));
    workers.back()->SendHello(RawWorker::GoodHello(rank, kRanks));
  }
  for (auto& worker : workers) {
    const v1::DaemonMessage message = worker->Receive();
    ASSERT_TRUE(message.has_welcome());
    worker->epoch = message.epoch();
  }
  for (auto& worker : workers) worker->Send(DetachMessage());
  for (auto& worker : workers) EXPECT_TRUE(worker->Receive().has_detached());
}

TEST(WorkerSession, FreesTheRankOfAWorkerThatIsGone) {
  ServedEngine served(1);
  for (const bool broken : {false, true}) {
    RawWorker worker(served.UnixChannel());
    ASSERT_TRUE(worker.Attach(0, 1).has_welcome());
    if (broken) {
      worker.Cancel();
    } else {
      worker.CloseSide();
      EXPECT_THAT(worker.ReceiveFault(), HasSubstr("without Detach"));
    }
    EXPECT_TRUE(served.AwaitSessions(0)) << (broken ? "broken" : "closed");
  }
  RawWorker next(served.UnixChannel());
  EXPECT_TRUE(next.Attach(0, 1).has_welcome());
}

TEST(WorkerSession, TellsTheOthersWhenTheDaemonStops) {
  ServedEngine served(1);
  RawWorker worker(served.UnixChannel());
  ASSERT_TRUE(worker.Attach(0, 1).has_welcome());
  served.engine().Stop("told to stop by the test");
  EXPECT_THAT(worker.ReceiveFault(), HasSubstr("told to stop by the test"));
  EXPECT_TRUE(worker.Finish().ok());
}

TEST(WorkerSession, IsNotServedOverTcp) {
  ServedEngine served(1);
  RawWorker worker(served.TcpChannel());
  worker.SendHello(RawWorker::GoodHello(0, 1));
  EXPECT_EQ(worker.Receive().body_case(), v1::DaemonMessage::BODY_NOT_SET);
  EXPECT_EQ(worker.Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace zerod
