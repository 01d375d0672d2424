#include "server/rpc/descriptor_service.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/contract/error.h"
#include "tests/server/rpc/served_engine.h"

namespace zerod {
namespace {

using ::testing::HasSubstr;

constexpr int kTimeoutMs = 5000;
constexpr int64_t kMemoryBytes = 8192;

/// Serves one memory to the token 7 and refuses everybody else.
class DescriptorServiceTest : public ::testing::Test {
 protected:
  DescriptorServiceTest() {
    std::memcpy(memory_.data(), "the shard", 10);
    service_ = std::make_unique<DescriptorService>(
        path_, [this](const DescriptorRequest& request, int64_t& size_bytes) {
          if (request.token != 7) throw Error(ErrorCode::kNotFound, "no attach has this token");
          size_bytes = memory_.size_bytes();
          return memory_.Share(Access::kReadOnly);
        });
  }

  /// What the memory says that a client gets, or the error.
  std::string Ask(const FileDescriptor& socket, uint64_t token) {
    SendRequest(socket.get(), {.token = token, .kind = MemoryKind::kRegion}, kTimeoutMs);
    FileDescriptor fd;
    const DescriptorReply reply = ReceiveReply(socket.get(), fd, kTimeoutMs);
    if (!reply.error.empty()) return reply.error;
    const Mapping mapping = MapShared(fd, reply.size_bytes, Access::kReadOnly);
    return reinterpret_cast<const char*>(mapping.data());
  }

  /// Whether the service closes a connection within the time.
  static bool IsClosed(const FileDescriptor& socket, std::chrono::milliseconds time) {
    pollfd polled{socket.get(), POLLIN, 0};
    if (poll(&polled, 1, static_cast<int>(time.count())) <= 0) return false;
    char byte = 0;
    const ssize_t got = recv(socket.get(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/d";
  SharedMemory memory_ = SharedMemory::Create("test", kMemoryBytes);
  std::unique_ptr<DescriptorService> service_;
};

TEST_F(DescriptorServiceTest, HandsOutMemoryAndErrorsOnOneConnection) {
  const FileDescriptor socket = ConnectUnix(path_);
  EXPECT_EQ(Ask(socket, 7), "the shard");
  EXPECT_EQ(Ask(socket, 8), "no attach has this token");
  EXPECT_EQ(Ask(socket, 7), "the shard");
}

TEST_F(DescriptorServiceTest, ServesOthersBesideASilentAHalfAndADeafClient) {
  const FileDescriptor silent = ConnectUnix(path_);
  const FileDescriptor half = ConnectUnix(path_);
  ASSERT_EQ(send(half.get(), "0123456789", 10, 0), 10);
  const FileDescriptor deaf = ConnectUnix(path_);
  bool sends = true;
  for (int i = 0; i < 20'000 && sends; ++i) {
    try {
      SendRequest(deaf.get(), {.token = 8}, 50);
    } catch (const Error&) {
      sends = false;  // its answers fill the buffers, then it is closed
    }
  }
  EXPECT_FALSE(sends);
  for (int i = 0; i < 100; ++i) {
    const FileDescriptor good = ConnectUnix(path_);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(Ask(good, 7), "the shard");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  }
  EXPECT_EQ(Ask(silent, 7), "the shard");
}

TEST_F(DescriptorServiceTest, ClosesAHalfRequestAfterItsLimit) {
  const FileDescriptor half = ConnectUnix(path_);
  ASSERT_EQ(send(half.get(), "0123456789", 10, 0), 10);
  EXPECT_FALSE(IsClosed(half, DescriptorService::kHalfRequestLimit / 2));
  EXPECT_TRUE(IsClosed(half, 2 * DescriptorService::kHalfRequestLimit));
}

TEST_F(DescriptorServiceTest, CompletesARequestThatComesInTwoParts) {
  const FileDescriptor socket = ConnectUnix(path_);
  const DescriptorRequest request{.token = 7, .kind = MemoryKind::kRegion};
  const char* bytes = reinterpret_cast<const char*>(&request);
  ASSERT_EQ(send(socket.get(), bytes, 9, 0), 9);
  EXPECT_FALSE(IsClosed(socket, std::chrono::milliseconds(60)));
  ASSERT_EQ(send(socket.get(), bytes + 9, sizeof(request) - 9, 0), 15);
  FileDescriptor fd;
  EXPECT_EQ(ReceiveReply(socket.get(), fd, kTimeoutMs).size_bytes, kMemoryBytes);
}

TEST_F(DescriptorServiceTest, ClosesAConnectionThatSendsNonsense) {
  const FileDescriptor socket = ConnectUnix(path_);
  const std::string nonsense(sizeof(DescriptorRequest), '\xff');
  ASSERT_EQ(send(socket.get(), nonsense.data(), nonsense.size(), 0),
            static_cast<ssize_t>(nonsense.size()));
  EXPECT_TRUE(IsClosed(socket, std::chrono::seconds(5)));
  EXPECT_EQ(Ask(ConnectUnix(path_), 7), "the shard");
}

TEST_F(DescriptorServiceTest, RemovesItsSocketAndRefusesATakenOne) {
  EXPECT_THROW(DescriptorService(path_, nullptr), Error);
  EXPECT_EQ(Ask(ConnectUnix(path_), 7), "the shard");
  service_.reset();
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace zerod
