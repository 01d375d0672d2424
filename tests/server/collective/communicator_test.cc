#include <atomic>
#include <barrier>

#include <gtest/gtest.h>

#include "tests/server/collective/nodes.h"

namespace zerod::testing {
namespace {

constexpr milliseconds kTimeout{20'000};

/// Every node sends one segment of `bytes(sender, receiver)` to every other and checks what it got.
template <typename Bytes>
void AllToAll(int node, int node_count, Communicator& communicator, uint64_t ticket, Bytes bytes) {
  std::vector<std::vector<std::byte>> sent(node_count), received(node_count);
  std::vector<SendSegment> sends;
  std::vector<ReceiveSegment> receives;
  for (int peer = 0; peer < node_count; ++peer) {
    if (peer == node) continue;
    sent[peer] = Filled(node, peer, ticket, bytes(node, peer));
    received[peer].resize(bytes(peer, node));
    sends.push_back({peer, Tag(ticket, node), sent[peer]});
    receives.push_back({peer, Tag(ticket, peer), received[peer]});
  }
  communicator.Exchange(sends, receives, kTimeout);
  for (int peer = 0; peer < node_count; ++peer) {
    if (peer != node) {
      ASSERT_EQ(received[peer], Filled(peer, node, ticket, bytes(peer, node)));
    }
  }
}

TEST(CommunicatorTest, EveryNodeGetsWhatEveryOtherSent) {
  for (int node_count : {2, 3}) {
    RunNodes(node_count, [&](int node, Communicator& communicator) {
      for (uint64_t ticket = 1; ticket <= 20; ++ticket) {
        AllToAll(node, node_count, communicator, ticket, [&](int sender, int receiver) {
          return 1 + 1000 * sender + 77 * receiver + ticket;
        });
      }
    });
  }
}

TEST(CommunicatorTest, SegmentsLandAtTheirOffsetsAndNowhereElse) {
  RunNodes(2, [](int node, Communicator& communicator) {
    std::vector<std::byte> buffer(3000, std::byte{0xEE});
    const auto data = Filled(node, 1 - node, 5, 1000);
    communicator.Exchange(std::vector<SendSegment>{{1 - node, Tag(5, node), data}},
                          std::vector<ReceiveSegment>{
                              {1 - node, Tag(5, 1 - node), std::span(buffer).subspan(1000, 1000)}},
                          kTimeout);
    for (size_t i = 0; i < 3000; ++i) {
      const bool inside = 1000 <= i && i < 2000;
      ASSERT_EQ(buffer[i], inside ? Expected(1 - node, node, 5, i - 1000) : std::byte{0xEE}) << i;
    }
  });
}

TEST(CommunicatorTest, SenderAndReceiverMayComeInEitherOrder) {
  for (int early_node : {0, 1}) {
    RunNodes(2, [&](int node, Communicator& communicator) {
      if (node != early_node) std::this_thread::sleep_for(milliseconds(100));
      const auto data = Filled(0, 1, 1, 100'000);
      std::vector<std::byte> received(100'000);
      if (node == 0) {
        communicator.Exchange(std::vector<SendSegment>{{1, Tag(1, 0), data}}, {}, kTimeout);
      } else {
        communicator.Exchange({}, std::vector<ReceiveSegment>{{0, Tag(1, 0), received}}, kTimeout);
        EXPECT_EQ(received, data);
      }
    });
  }
}

TEST(CommunicatorTest, FourThreadsExchangeAtOnceWithDifferentTags) {
  RunNodes(3, [](int node, Communicator& communicator) {
    std::vector<std::future<void>> threads;
    threads.reserve(4);
    for (int thread = 0; thread < 4; ++thread) {
      threads.push_back(std::async(std::launch::async, [&, thread] {
        for (uint64_t round = 0; round < 50; ++round) {
          AllToAll(node, 3, communicator, 1 + round * 4 + thread, [&](int sender, int receiver) {
            return 100 + 5000 * thread + 300 * sender + 20 * receiver + 1000 * (round % 7);
          });
        }
      }));
    }
    for (auto& thread : threads) thread.get();
  });
}

TEST(CommunicatorTest, ManySegmentsOfOneExchangeFindTheirPlaces) {
  RunNodes(2, [](int node, Communicator& communicator) {
    constexpr int kSegments = 200;
    std::vector<std::vector<std::byte>> sent, received;
    std::vector<SendSegment> sends;
    std::vector<ReceiveSegment> receives;
    for (int i = 0; i < kSegments; ++i) {
      sent.push_back(Filled(node, 1 - node, i, 10 + i * 97));
      received.emplace_back(10 + i * 97);
    }
    for (int i = 0; i < kSegments; ++i) {
      sends.push_back({1 - node, Tag(i, node), sent[i]});
      // In the opposite order: only the tag decides.
      receives.push_back({1 - node, Tag(kSegments - 1 - i, 1 - node), received[kSegments - 1 - i]});
    }
    communicator.Exchange(sends, receives, kTimeout);
    for (int i = 0; i < kSegments; ++i) {
      ASSERT_EQ(received[i], Filled(1 - node, node, i, 10 + i * 97)) << i;
    }
  });
}

TEST(CommunicatorTest, ALargeSegmentArrivesWhole) {
  RunNodes(2, [](int node, Communicator& communicator) {
    AllToAll(node, 2, communicator, 1, [](int, int) { return ZEROD_LARGE_SEGMENT_BYTES; });
  });
}

TEST(CommunicatorTest, EmptySegmentsAreSkippedOnBothSides) {
  RunNodes(2, [](int node, Communicator& communicator) {
    communicator.Exchange({}, {}, kTimeout);
    AllToAll(node, 2, communicator, 1, [](int sender, int) { return sender == 0 ? 0 : 50; });
    AllToAll(node, 2, communicator, 2, [](int, int) { return 0; });
    EXPECT_EQ(communicator.counters().sent_bytes, node == 0 ? 0u : 50u);
    EXPECT_EQ(communicator.counters().received_bytes, node == 0 ? 50u : 0u);
  });
}

TEST(CommunicatorTest, CountersAreTheExactNumberOfPayloadBytes) {
  RunNodes(3, [](int node, Communicator& communicator) {
    const auto bytes = [](int sender, int receiver) { return 1000 * (sender + 1) + receiver; };
    for (uint64_t ticket = 1; ticket <= 7; ++ticket) {
      AllToAll(node, 3, communicator, ticket, bytes);
    }
    uint64_t sent = 0, received = 0;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == node) continue;
      sent += 7 * bytes(node, peer);
      received += 7 * bytes(peer, node);
    }
    EXPECT_EQ(communicator.counters().sent_bytes, sent);
    EXPECT_EQ(communicator.counters().received_bytes, received);
  });
}

TEST(CommunicatorTest, ASenderThatLeavesAtOnceHasLostNothing) {
  constexpr size_t kBytes = ZEROD_LARGE_SEGMENT_BYTES / 2;
  for (int round = 0; round < 5; ++round) {
    TemporaryFolder folder;
    const auto data = Filled(0, 1, 1, kBytes);
    auto sender = std::async(std::launch::async, [&] {
      const auto communicator = Connect(folder.path(), 0, 2);
      communicator->Exchange(std::vector<SendSegment>{{1, Tag(1, 0), data}}, {}, kTimeout);
    });
    const auto communicator = Connect(folder.path(), 1, 2);
    std::vector<std::byte> received(kBytes);
    communicator->Exchange({}, std::vector<ReceiveSegment>{{0, Tag(1, 0), received}}, kTimeout);
    EXPECT_EQ(received, data);
    sender.get();
  }
}

TEST(CommunicatorTest, ALoneNodeExchangesNothing) {
  TemporaryFolder folder;
  const auto communicator = Connect(folder.path(), 0, 1);
  communicator->Exchange({}, {}, kTimeout);
  communicator->Abort();
  EXPECT_EQ(FailureOf([&] { communicator->Exchange({}, {}, kTimeout); }), "aborted");
}

}  // namespace
}  // namespace zerod::testing
