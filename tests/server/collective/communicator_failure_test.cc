#include <csignal>

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "tests/server/collective/nodes.h"

namespace zerod::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr milliseconds kTimeout{20'000};

milliseconds Since(Clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - start);
}

std::string Receive(Communicator& communicator, int node, uint64_t ticket,
                    std::span<std::byte> data, milliseconds timeout = kTimeout) {
  return FailureOf([&] {
    communicator.Exchange({}, std::vector<ReceiveSegment>{{node, Tag(ticket, node), data}},
                          timeout);
  });
}

std::string Send(Communicator& communicator, int from, int to, uint64_t ticket,
                 std::span<const std::byte> data) {
  return FailureOf([&] {
    communicator.Exchange(std::vector<SendSegment>{{to, Tag(ticket, from), data}}, {}, kTimeout);
  });
}

TEST(CommunicatorFailureTest, AbortEndsPendingAndFutureExchangesWithin100Milliseconds) {
  TemporaryFolder folder;
  auto other = std::async(std::launch::async, [&] { return Connect(folder.path(), 1, 2); });
  const auto communicator = Connect(folder.path(), 0, 2);
  const auto other_communicator = other.get();
  std::vector<std::byte> received(1000), sent(1000);
  auto receiver =
      std::async(std::launch::async, [&] { return Receive(*communicator, 1, 1, received); });
  auto sender = std::async(std::launch::async, [&] { return Send(*communicator, 0, 1, 2, sent); });
  std::this_thread::sleep_for(milliseconds(50));
  const auto start = Clock::now();
  communicator->Abort();
  EXPECT_LT(Since(start), milliseconds(20));
  EXPECT_EQ(receiver.get(), "aborted");
  EXPECT_EQ(sender.get(), "aborted");
  EXPECT_LT(Since(start), milliseconds(100));
  EXPECT_EQ(Receive(*communicator, 1, 3, received), "aborted");
  EXPECT_EQ(FailureOf([&] { communicator->Exchange({}, {}, kTimeout); }), "aborted");
}

TEST(CommunicatorFailureTest, AfterAnAbortInMidTransferTheMemoryIsOurs) {
  constexpr size_t kBytes = ZEROD_LARGE_SEGMENT_BYTES / 4;
  for (int round = 0; round < 10; ++round) {
    TemporaryFolder folder;
    auto sender = std::async(std::launch::async, [&] {
      const auto communicator = Connect(folder.path(), 1, 2);
      const std::vector<std::byte> data(kBytes, std::byte{0x11});
      return Send(*communicator, 1, 0, 1, data);
    });
    auto communicator = Connect(folder.path(), 0, 2);
    std::vector<std::byte> received(kBytes);
    auto receiver =
        std::async(std::launch::async, [&] { return Receive(*communicator, 1, 1, received); });
    std::this_thread::sleep_for(milliseconds(round));
    communicator->Abort();
    receiver.get();
    std::fill(received.begin(), received.end(), std::byte{0x22});
    if (round % 2 == 0) communicator.reset();
    std::this_thread::sleep_for(milliseconds(30));
    EXPECT_EQ(received, std::vector<std::byte>(kBytes, std::byte{0x22}));
    communicator.reset();
    sender.get();
  }
}

TEST(CommunicatorFailureTest, DestructionEndsExchangesOfOtherThreads) {
  TemporaryFolder folder;
  auto other = std::async(std::launch::async, [&] { return Connect(folder.path(), 1, 2); });
  auto communicator = Connect(folder.path(), 0, 2);
  const auto other_communicator = other.get();
  std::vector<std::byte> received(1000);
  Communicator* pending = communicator.get();
  auto receiver = std::async(std::launch::async, [&] { return Receive(*pending, 1, 1, received); });
  std::this_thread::sleep_for(milliseconds(50));
  const auto start = Clock::now();
  communicator.reset();
  EXPECT_EQ(receiver.get(), "aborted");
  EXPECT_LT(Since(start), milliseconds(500));
}

TEST(CommunicatorFailureTest, SegmentsWithAnotherTagAreNeverDelivered) {
  RunNodes(2, [](int node, Communicator& communicator) {
    const std::vector<std::byte> sent(1000, std::byte{1});
    std::vector<std::byte> received(1000, std::byte{2});
    if (node == 0) {
      SegmentTag tag = Tag(7, 0);
      tag.layer += 1;
      EXPECT_NE(
          FailureOf([&] {
            communicator.Exchange(std::vector<SendSegment>{{1, tag, sent}}, {}, milliseconds(400));
          }),
          "none");
    } else {
      EXPECT_EQ(Receive(communicator, 0, 7, received, milliseconds(200)), "deadline exceeded");
      EXPECT_EQ(received, std::vector<std::byte>(1000, std::byte{2}));
    }
  });
}

TEST(CommunicatorFailureTest, ATimeOutEndsTheCommunicatorAndSaysWhatIsMissing) {
  TemporaryFolder folder;
  auto other = std::async(std::launch::async, [&] { return Connect(folder.path(), 1, 2); });
  const auto communicator = Connect(folder.path(), 0, 2);
  const auto other_communicator = other.get();
  std::vector<std::byte> received(1000), patient(1000);
  auto second =
      std::async(std::launch::async, [&] { return Receive(*communicator, 1, 8, patient); });
  const auto start = Clock::now();
  try {
    communicator->Exchange({}, std::vector<ReceiveSegment>{{1, Tag(7, 1), received}},
                           milliseconds(200));
    ADD_FAILURE() << "nothing was sent";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
    EXPECT_STREQ(error.what(),
                 "communicator test: node 1 sent no segment (gather ticket 7, layer 3, chunk 1, "
                 "rank 1) within 200 ms");
  }
  EXPECT_EQ(second.get(), "deadline exceeded");
  EXPECT_LT(Since(start), milliseconds(400));
  EXPECT_EQ(Receive(*communicator, 1, 9, received), "deadline exceeded");
}

/// A process that connects as `node`, runs `body` and is then killed by the test.
class Process {
 public:
  Process(const std::filesystem::path& folder, int node, int node_count,
          const std::function<void(Communicator&)>& body)
      : pid_(fork()) {
    if (pid_ != 0) return;
    try {
      const auto communicator = Connect(folder, node, node_count);
      body(*communicator);
      while (true) pause();
    } catch (const std::exception&) {
      while (true) pause();
    }
  }
  ~Process() { Kill(); }
  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

TEST(CommunicatorFailureTest, ADeadPeerEndsPendingExchangesWithinOneSecond) {
  TemporaryFolder folder;
  Process peer(folder.path(), 1, 2, [](Communicator&) {});
  const auto communicator = Connect(folder.path(), 0, 2);
  std::vector<std::byte> received(1000);
  auto receiver =
      std::async(std::launch::async, [&] { return Receive(*communicator, 1, 1, received); });
  std::this_thread::sleep_for(milliseconds(50));
  const auto start = Clock::now();
  peer.Kill();
  EXPECT_EQ(receiver.get(), "unavailable");
  EXPECT_LT(Since(start), milliseconds(1000));
  EXPECT_EQ(Receive(*communicator, 1, 2, received), "unavailable");
}

TEST(CommunicatorFailureTest, APeerThatDiesInMidSegmentEndsBothDirections) {
  constexpr size_t kBytes = 96 << 20;
  for (int delay : {0, 5, 20, 40}) {
    TemporaryFolder folder;
    Process peer(folder.path(), 1, 2, [](Communicator& communicator) {
      std::vector<std::byte> data(kBytes), received(kBytes);
      communicator.Exchange(std::vector<SendSegment>{{0, Tag(1, 1), data}},
                            std::vector<ReceiveSegment>{{0, Tag(2, 0), received}}, kTimeout);
    });
    const auto communicator = Connect(folder.path(), 0, 2);
    std::vector<std::byte> received(kBytes), sent(kBytes);
    auto receiver =
        std::async(std::launch::async, [&] { return Receive(*communicator, 1, 1, received); });
    auto sender =
        std::async(std::launch::async, [&] { return Send(*communicator, 0, 1, 2, sent); });
    while (communicator->counters().received_bytes == 0) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(delay));
    const auto start = Clock::now();
    peer.Kill();
    EXPECT_EQ(receiver.get(), "unavailable");
    sender.get();
    EXPECT_LT(Since(start), milliseconds(1000)) << delay;
  }
}

TEST(CommunicatorFailureTest, APeerThatLeavesDoesNotDisturbTheOthers) {
  TemporaryFolder folder;
  auto first = std::async(std::launch::async, [&] { return Connect(folder.path(), 1, 3); });
  auto second = std::async(std::launch::async, [&] { return Connect(folder.path(), 2, 3); });
  const auto communicator = Connect(folder.path(), 0, 3);
  auto leaving = first.get();
  const auto staying = second.get();
  const auto data = Filled(2, 0, 1, 1000);
  std::vector<std::byte> received(1000);
  auto receiver =
      std::async(std::launch::async, [&] { return Receive(*communicator, 2, 1, received); });
  leaving.reset();
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(Send(*staying, 2, 0, 1, data), "none");
  EXPECT_EQ(receiver.get(), "none");
  EXPECT_EQ(received, data);
  EXPECT_EQ(Receive(*communicator, 1, 2, received), "unavailable");
  EXPECT_EQ(Send(*staying, 2, 1, 3, data), "unavailable");
}

TEST(CommunicatorFailureTest, ANodeThatNeverComesIsNamed) {
  TemporaryFolder folder;
  const auto start = Clock::now();
  try {
    Connect(folder.path(), 0, 2, milliseconds(200));
    ADD_FAILURE() << "connected to nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
    EXPECT_NE(std::string(error.what()).find("node 0 can't reach node 1"), std::string::npos)
        << error.what();
  }
  EXPECT_LT(Since(start), milliseconds(2000));
}

TEST(CommunicatorFailureTest, AnAddressOfAnotherHostIsRefused) {
  TemporaryFolder folder;
  FolderStore store(folder.path());
  try {
    MakeGlooCommunicator({.node = 0, .node_count = 2, .name = "test", .host = "192.0.2.1"}, store);
    ADD_FAILURE() << "listened on an address of documentation";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_NE(std::string(error.what()).find("192.0.2.1"), std::string::npos) << error.what();
  }
}

TEST(CommunicatorFailureTest, OtherAddressesInTheStoreAreRefused) {
  TemporaryFolder folder;
  FolderStore(folder.path()).Set("test/1", "not an address");
  EXPECT_EQ(FailureOf([&] { Connect(folder.path(), 0, 2); }), "unavailable");
}

}  // namespace
}  // namespace zerod::testing
