#include <atomic>
#include <thread>

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include "proto/contract/operation.h"
#include "proto/peer.grpc.pb.h"
#include "server/cluster/handshake.h"
#include "tests/server/cluster/nodes.h"
#include "tests/support/wait_until.h"

namespace zerod::testing {
namespace {

v1::PeerHello HelloOf(int node, int expected_node, int node_count = 2) {
  v1::PeerHello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_node(node);
  hello.set_node_count(node_count);
  hello.set_ranks(1);
  hello.set_version("other");
  hello.set_incarnation(77);
  hello.set_expected_node(expected_node);
  return hello;
}

/// Sends one message to a node, as a peer of whatever kind would, and returns how it was answered:
/// its hello, or the text of the status with which it ended the stream.
std::string AnswerTo(const std::string& address, const v1::PeerMessage& message) {
  const auto stub =
      v1::Peer::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  const auto stream = stub->Link(&context);
  stream->Write(message);
  v1::PeerMessage answer;
  if (stream->Read(&answer)) {
    context.TryCancel();
    return answer.has_hello() ? "hello" : "something else";
  }
  return stream->Finish().error_message();
}

std::string AnswerTo(const std::string& address, const v1::PeerHello& hello) {
  v1::PeerMessage message;
  *message.mutable_hello() = hello;
  return AnswerTo(address, message);
}

/// A peer that answers every call with the same hello.
class FixedAnswer final : public v1::Peer::Service {
 public:
  explicit FixedAnswer(v1::PeerHello hello) : hello_(std::move(hello)) {}
  grpc::Status Link(grpc::ServerContext*,
                    grpc::ServerReaderWriter<v1::PeerMessage, v1::PeerMessage>* stream) override {
    v1::PeerMessage message;
    *message.mutable_hello() = hello_;
    stream->Write(message);
    while (stream->Read(&message)) {
    }
    ++calls;
    return grpc::Status::OK;
  }
  std::atomic<int> calls{0};

 private:
  const v1::PeerHello hello_;
};

TEST(HandshakeTest, EveryDifferenceIsNamedWithBothValues) {
  const v1::PeerHello caller = HelloOf(0, 1), callee = HelloOf(1, 0);
  EXPECT_EQ(Mismatch(caller, callee), std::nullopt);

  v1::PeerHello other = callee;
  other.set_protocol_version(99);
  EXPECT_EQ(Mismatch(caller, other),
            "node 0 speaks protocol version 1 (zerod other), node 1 version 99 (zerod other); run "
            "the same version on all nodes");
  other = callee;
  other.set_node_count(3);
  EXPECT_EQ(Mismatch(caller, other),
            "node 0 knows 2 nodes, node 1 3; give all nodes the same --peers list");
  EXPECT_EQ(Mismatch(caller, caller), "two daemons are node 0; give each node its own --node");
  EXPECT_EQ(Mismatch(HelloOf(0, 2, 3), HelloOf(1, 0, 3)),
            "node 0 called node 2, but node 1 answered; check --node there and the order of "
            "--peers");
  EXPECT_EQ(Mismatch(HelloOf(1, 0), HelloOf(0, 1)),
            "node 1 called node 0; the lower node calls the higher one");
  EXPECT_EQ(Mismatch(HelloOf(-5, 1), callee), "there is no node -5 among 2 nodes");
  other = callee;
  other.set_ranks(0);
  EXPECT_EQ(Mismatch(caller, other), "node 1 says that it has 0 ranks");
}

TEST(RefusalTest, ACallerLearnsWhyItIsRefused) {
  const auto peers = FreeAddresses(2);
  Node node(1, peers);
  v1::PeerHello hello = HelloOf(0, 1);
  hello.set_protocol_version(99);
  EXPECT_NE(AnswerTo(peers[1], hello).find("protocol version 99"), std::string::npos);
  EXPECT_NE(AnswerTo(peers[1], HelloOf(0, 1, 7)).find("node 0 knows 7 nodes, node 1 2"),
            std::string::npos);
  EXPECT_NE(AnswerTo(peers[1], HelloOf(1, 1)).find("two daemons are node 1"), std::string::npos);
  EXPECT_NE(AnswerTo(peers[1], HelloOf(0, 0)).find("node 1 answered"), std::string::npos);
  EXPECT_EQ(AnswerTo(peers[1], v1::PeerMessage()), "its first message was no hello");
  EXPECT_EQ(AnswerTo(peers[1], HelloOf(0, 1)), "hello");
}

TEST(RefusalTest, ASecondDaemonWithTheSameNodeIsRefused) {
  const auto peers = FreeAddresses(2);
  Node first(0, peers), second(1, peers);
  for (Node* node : {&first, &second}) ASSERT_TRUE(node->recorder().Await("membership"));
  EXPECT_NE(AnswerTo(peers[1], HelloOf(0, 1)).find("two daemons have --node 0"), std::string::npos);
  first.cluster().Send(1, End(5));
  EXPECT_TRUE(second.recorder().Await("from 0"));
  EXPECT_EQ(second.recorder().Count("lost"), 0);
}

TEST(RefusalTest, AnAnswerThatDoesNotFitIsLoggedOnceAndTriedAgain) {
  LogCapture log;
  const auto peers = FreeAddresses(2);
  v1::PeerHello hello = HelloOf(1, 0);
  hello.set_protocol_version(99);
  FixedAnswer answer(hello);
  const auto server = Serve(peers[1], &answer);
  {
    Node node(0, peers);
    while (answer.calls < 4) std::this_thread::sleep_for(10ms);
    EXPECT_NE(node.cluster().WaitingFor().find("node 1 version 99"), std::string::npos)
        << node.cluster().WaitingFor();
    EXPECT_EQ(node.recorder().lines().size(), 0u);
  }
  server->Shutdown();
  EXPECT_EQ(log.Count("node 1 version 99"), 1) << log.text();
}

TEST(RefusalTest, TwoNodesThatDoNotFitBothSayWhy) {
  LogCapture log;
  const auto peers = FreeAddresses(3);
  {
    Node first(0, {peers[0], peers[1]}), second(1, peers);
    std::this_thread::sleep_for(500ms);
    EXPECT_EQ(first.recorder().lines().size(), 0u);
  }
  EXPECT_EQ(log.Count("node 0 knows 2 nodes, node 1 3"), 2) << log.text();
}

TEST(RefusalTest, ANameThatDoesNotResolveIsTriedAgainWithOneLinePerPeriod) {
  LogCapture log;
  const auto peers = FreeAddresses(1);
  {
    Node node({.node = 0,
               .peers = {peers[0], "no-such-host.invalid:7000"},
               .ranks = 1,
               .version = "test",
               .retry = 20ms,
               .report_period = 500ms,
               .answer_timeout = 5s},
              peers[0]);
    const auto lines = [&log] {
      return log.Count("waiting for node 1 at no-such-host.invalid:7000");
    };
    const auto start = std::chrono::steady_clock::now();
    // How long a name takes not to resolve is up to the machine.
    ASSERT_TRUE(WaitUntil(20s, [&] { return lines() >= 3; })) << log.text();
    EXPECT_GE(std::chrono::steady_clock::now() - start, 1000ms) << log.text();
    EXPECT_EQ(node.cluster().WaitingFor(),
              "node 1 at no-such-host.invalid:7000: the name doesn't resolve yet");
  }
}

TEST(RefusalTest, APeerThatIsNotThereYetIsReportedOncePerPeriod) {
  LogCapture log;
  const auto peers = FreeAddresses(2);
  {
    Node node({.node = 0,
               .peers = peers,
               .ranks = 1,
               .version = "test",
               .retry = 20ms,
               .report_period = 400ms,
               .answer_timeout = 5s},
              peers[0]);
    std::this_thread::sleep_for(1s);
    EXPECT_EQ(node.cluster().WaitingFor(), "node 1 at " + peers[1] + ": nobody listens there yet");
    Node late(1, peers);
    EXPECT_TRUE(node.recorder().Await("membership"));
  }
  EXPECT_EQ(log.Count("nobody listens there yet"), 3) << log.text();
}

TEST(RefusalTest, AMessageThatCannotBeReadEndsTheLink) {
  const auto peers = FreeAddresses(2);
  Node node(1, peers);
  const auto stub =
      v1::Peer::NewStub(grpc::CreateChannel(peers[1], grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto stream = stub->Link(&context);
  v1::PeerMessage message, answer;
  *message.mutable_hello() = HelloOf(0, 1);
  stream->Write(message);
  ASSERT_TRUE(stream->Read(&answer));
  message.mutable_abort()->set_code(1000);
  stream->Write(message);
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(stream->Finish().error_message(),
            "it sent what can't be read: unknown error code 1000");
  EXPECT_TRUE(node.recorder().Await("lost 0"));
}

TEST(RefusalTest, APeerThatDoesNotReadIsDroppedBeforeMemoryRunsOut) {
  const auto peers = FreeAddresses(2);
  Node node(1, peers);
  const auto stub =
      v1::Peer::NewStub(grpc::CreateChannel(peers[1], grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto stream = stub->Link(&context);
  v1::PeerMessage message;
  *message.mutable_hello() = HelloOf(0, 1);
  stream->Write(message);
  ASSERT_TRUE(node.recorder().Await("membership"));
  const PeerMessage large{.epoch = 1,
                          .body = StoreEntry{.key = "k", .value = std::string(1 << 20, 'x')}};
  for (int i = 0; i < 100; ++i) node.cluster().Send(0, large);
  EXPECT_TRUE(node.recorder().Await("lost 0"));
  EXPECT_NE(node.cluster().WaitingFor().find("it doesn't read"), std::string::npos)
      << node.cluster().WaitingFor();
  context.TryCancel();
  stream->Finish();
}

}  // namespace
}  // namespace zerod::testing
