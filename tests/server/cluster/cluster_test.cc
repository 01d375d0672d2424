#include <array>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/server/cluster/nodes.h"

namespace zerod::testing {
namespace {

std::string FromEnd(int node, uint64_t epoch) {
  return Concat("from ", node, " ", End(0).body.index(), " ", epoch);
}

TEST(ClusterTest, ThreeNodesFindEachOtherInAnyOrderOfStart) {
  const auto peers = FreeAddresses(3);
  for (const std::vector<int>& order : {std::vector{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    std::vector<std::unique_ptr<Node>> nodes(3);
    for (const int node : order) {
      nodes[node] = std::make_unique<Node>(node, peers, node + 1);
      std::this_thread::sleep_for(30ms);
    }
    for (const auto& node : nodes) {
      ASSERT_TRUE(node->recorder().Await("membership 1 2 3"));
      EXPECT_EQ(node->cluster().WaitingFor(), "");
      for (const PeerState& state : node->cluster().States()) {
        EXPECT_TRUE(state.connected);
        EXPECT_EQ(state.ranks, state.node + 1);
        EXPECT_EQ(state.address, peers[state.node]);
      }
    }
  }
}

TEST(ClusterTest, ALoneNodeHasItsMembershipAtOnce) {
  Recorder recorder;
  Cluster cluster({.node = 0, .peers = {}, .ranks = 4, .version = "test"}, recorder);
  cluster.Start();
  ASSERT_TRUE(recorder.Await("membership 4"));
  EXPECT_EQ(cluster.DataHost(), "127.0.0.1");
  EXPECT_EQ(cluster.WaitingFor(), "");
  cluster.Broadcast(End(1));
}

TEST(ClusterTest, MessagesOfANodeArriveInOrder) {
  const auto peers = FreeAddresses(3);
  Node first(0, peers), second(1, peers), third(2, peers);
  for (Node* node : {&first, &second, &third}) ASSERT_TRUE(node->recorder().Await("membership"));
  constexpr int kMessages = 2000;
  for (uint64_t epoch = 0; epoch < kMessages; ++epoch) {
    first.cluster().Send(2, End(epoch));
    third.cluster().Broadcast(End(epoch));
  }
  ASSERT_TRUE(third.recorder().Await("from 0", kMessages));
  ASSERT_TRUE(first.recorder().Await("from 2", kMessages));
  ASSERT_TRUE(second.recorder().Await("from 2", kMessages));
  for (Node* node : {&first, &second, &third}) {
    const auto lines = node->recorder().lines();
    ASSERT_EQ(lines.size(), 1u + kMessages);
    const int sender = node == &third ? 0 : 2;
    for (uint64_t epoch = 0; epoch < kMessages; ++epoch) {
      ASSERT_EQ(lines[1 + epoch], FromEnd(sender, epoch));
    }
  }
}

TEST(ClusterTest, WhatWasSentBeforeStopArrives) {
  const auto peers = FreeAddresses(2);
  for (const int leaving : {0, 1}) {
    std::array<std::unique_ptr<Node>, 2> nodes;
    for (const int node : {0, 1}) nodes[node] = std::make_unique<Node>(node, peers);
    for (const auto& node : nodes) ASSERT_TRUE(node->recorder().Await("membership"));
    for (uint64_t epoch = 0; epoch < 500; ++epoch) nodes[leaving]->cluster().Broadcast(End(epoch));
    nodes[leaving].reset();
    Recorder& recorder = nodes[1 - leaving]->recorder();
    EXPECT_TRUE(recorder.Await("lost"));
    EXPECT_EQ(recorder.Count("from"), 500);
    EXPECT_EQ(recorder.lines().back(), Concat("lost ", leaving));
  }
}

TEST(ClusterTest, ALostPeerIsToldAndComesBack) {
  const auto peers = FreeAddresses(3);
  Node first(0, peers), second(1, peers);
  auto third = std::make_unique<Node>(2, peers, 1);
  for (Node* node : {&first, &second}) ASSERT_TRUE(node->recorder().Await("membership 1 1 1"));
  third.reset();
  for (Node* node : {&first, &second}) {
    ASSERT_TRUE(node->recorder().Await("lost 2"));
    EXPECT_TRUE(node->cluster().WaitingFor().starts_with("node 2 at " + peers[2] + ": "));
    node->cluster().Send(2, End(1));  // to nobody
  }
  third = std::make_unique<Node>(2, peers, 5);
  for (Node* node : {&first, &second, third.get()}) {
    ASSERT_TRUE(node->recorder().Await("membership 1 1 5"));
  }
  first.cluster().Send(2, End(7));
  ASSERT_TRUE(third->recorder().Await(FromEnd(0, 7)));
  EXPECT_EQ(third->recorder().Count("from"), 1);
  EXPECT_EQ(first.recorder().lines(),
            (std::vector<std::string>{"membership 1 1 1", "lost 2", "membership 1 1 5"}));
}

TEST(ClusterTest, AKilledProcessIsSeenWithinOneSecond) {
  const auto peers = FreeAddresses(2);
  for (const int own : {0, 1}) {
    // A new program: gRPC doesn't survive a fork.
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const std::string node = std::to_string(1 - own);
      execl("/proc/self/exe", "cluster_test", "--as-node", node.c_str(), peers[0].c_str(),
            peers[1].c_str(), nullptr);
      _exit(127);
    }
    Node node(own, peers);
    const bool together = node.recorder().Await("membership");
    const auto start = std::chrono::steady_clock::now();
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    ASSERT_TRUE(together);
    ASSERT_TRUE(node.recorder().Await("lost"));
    EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
  }
}

TEST(ClusterTest, StopEndsEverythingWhileNobodyAnswers) {
  const auto peers = FreeAddresses(3);
  const auto start = std::chrono::steady_clock::now();
  {
    Node node(1, peers);
    std::this_thread::sleep_for(100ms);
    EXPECT_NE(node.cluster().WaitingFor().find("node 0 at " + peers[0] + ": it hasn't called yet"),
              std::string::npos);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
}

TEST(ClusterTest, TheDataHostIsTheHostOfTheOwnEntry) {
  Recorder recorder;
  const std::vector<std::string> peers{"first.example:7000", "[::1]:7001", "10.1.2.3:7000"};
  const auto host_of = [&](int node) {
    return Cluster({.node = node, .peers = peers, .ranks = 1, .version = ""}, recorder).DataHost();
  };
  EXPECT_EQ(host_of(0), "first.example");
  EXPECT_EQ(host_of(1), "::1");
  EXPECT_EQ(host_of(2), "10.1.2.3");
}

TEST(ClusterTest, AWrongPeerListIsRefused) {
  Recorder recorder;
  for (const std::string entry :
       {"host", "host:", ":7000", "host:0", "host:65536", "::1:7000", "host:7000x", ""}) {
    EXPECT_THROW(Cluster({.node = 0, .peers = {"a:1", entry}, .ranks = 1, .version = ""}, recorder),
                 Error)
        << entry;
  }
  EXPECT_THROW(Cluster({.node = 2, .peers = {"a:1", "b:1"}, .ranks = 1, .version = ""}, recorder),
               Error);
}

}  // namespace

/// The other program of AKilledProcessIsSeenWithinOneSecond.
int RunAsNode(char** arguments) {
  Node node(std::stoi(arguments[0]), {arguments[1], arguments[2]});
  while (true) pause();
}

}  // namespace zerod::testing

int main(int argc, char** argv) {
  if (argc == 5 && std::string(argv[1]) == "--as-node") return zerod::testing::RunAsNode(argv + 2);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
