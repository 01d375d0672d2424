#include "proto/contract/descriptor.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/contract/error.h"

namespace zerod {
namespace {

constexpr int kTimeoutMs = 5000;
constexpr int64_t kSize = 8192;

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

class DescriptorTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    worker_ = FileDescriptor(ends[0]);
    daemon_ = FileDescriptor(ends[1]);
    char name[] = "/tmp/zd-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  ErrorCode CodeOfRequest() {
    DescriptorRequest request;
    return ErrorOf([&] { ReceiveRequest(daemon_.get(), request, kTimeoutMs); }).code();
  }
  ErrorCode CodeOfReply(int timeout_ms = kTimeoutMs) {
    FileDescriptor fd;
    return ErrorOf([&] { ReceiveReply(worker_.get(), fd, timeout_ms); }).code();
  }

  FileDescriptor worker_;
  FileDescriptor daemon_;
  std::string folder_;
};

TEST_F(DescriptorTest, ARequestArrivesAsItWasSent) {
  SendRequest(worker_.get(), {0xfeed'beef'0123ull, MemoryKind::kRegion, 12, 3}, kTimeoutMs);
  DescriptorRequest request;
  ASSERT_TRUE(ReceiveRequest(daemon_.get(), request, kTimeoutMs));
  EXPECT_EQ(request.token, 0xfeed'beef'0123ull);
  EXPECT_EQ(request.kind, MemoryKind::kRegion);
  EXPECT_EQ(request.index, 12);
  EXPECT_EQ(request.chunk, 3);
}

TEST_F(DescriptorTest, AReplyCarriesTheMemoryItself) {
  const SharedMemory memory = SharedMemory::Create("zerod-test", kSize);
  memory.data()[100] = std::byte{5};
  SendReply(daemon_.get(), {kSize, ""}, memory.Share(Access::kReadOnly), kTimeoutMs);
  FileDescriptor fd;
  const DescriptorReply reply = ReceiveReply(worker_.get(), fd, kTimeoutMs);
  EXPECT_EQ(reply.error, "");
  EXPECT_EQ(reply.size_bytes, kSize);
  EXPECT_EQ(MapShared(fd, kSize, Access::kReadOnly).data()[100], std::byte{5});
}

TEST_F(DescriptorTest, ARefusalCarriesItsReasonAndNoDescriptor) {
  SendReply(daemon_.get(), {0, "layer 7 isn't leased"}, FileDescriptor(), kTimeoutMs);
  FileDescriptor fd;
  EXPECT_EQ(ReceiveReply(worker_.get(), fd, kTimeoutMs).error, "layer 7 isn't leased");
  EXPECT_FALSE(fd.valid());
}

TEST_F(DescriptorTest, ALongReasonIsCut) {
  SendReply(daemon_.get(), {0, std::string(4000, 'x')}, FileDescriptor(), kTimeoutMs);
  FileDescriptor fd;
  EXPECT_EQ(ReceiveReply(worker_.get(), fd, kTimeoutMs).error, std::string(480, 'x'));
}

TEST_F(DescriptorTest, AnOrderlyEndIsNoError) {
  worker_ = FileDescriptor();
  DescriptorRequest request;
  EXPECT_FALSE(ReceiveRequest(daemon_.get(), request, kTimeoutMs));
}

TEST_F(DescriptorTest, ADaemonThatIsGoneIsUnavailable) {
  daemon_ = FileDescriptor();
  EXPECT_EQ(CodeOfReply(), ErrorCode::kUnavailable);
  const auto send = [this] { SendRequest(worker_.get(), {}, kTimeoutMs); };
  EXPECT_EQ(ErrorOf(send).code(), ErrorCode::kUnavailable);
}

TEST_F(DescriptorTest, ASilentDaemonIsLate) {
  EXPECT_EQ(CodeOfReply(20), ErrorCode::kDeadlineExceeded);
}

TEST_F(DescriptorTest, ATruncatedMessageIsDataLoss) {
  ASSERT_EQ(send(worker_.get(), "0123456789", 10, 0), 10);
  worker_ = FileDescriptor();
  EXPECT_EQ(CodeOfRequest(), ErrorCode::kDataLoss);
}

TEST_F(DescriptorTest, AMessageInSingleBytesIsPutTogether) {
  const DescriptorRequest sent{42, MemoryKind::kStage, 6, 0};
  std::jthread sender([&] {
    for (size_t i = 0; i < sizeof(sent); ++i) {
      EXPECT_EQ(send(worker_.get(), reinterpret_cast<const char*>(&sent) + i, 1, 0), 1);
    }
  });
  DescriptorRequest request;
  ASSERT_TRUE(ReceiveRequest(daemon_.get(), request, kTimeoutMs));
  EXPECT_EQ(request.token, 42u);
  EXPECT_EQ(request.index, 6);
}

TEST_F(DescriptorTest, AFloodOfGarbageIsAnErrorEveryTime) {
  std::mt19937 random(17);
  for (int round = 0; round < 2000; ++round) {
    uint32_t words[124];  // the size of a reply
    for (uint32_t& word : words) word = static_cast<uint32_t>(random());
    ASSERT_EQ(send(daemon_.get(), words, sizeof(words), 0), ssize_t{sizeof(words)});
    ASSERT_EQ(CodeOfReply(), ErrorCode::kDataLoss);
    words[2] |= 0x100;  // no such kind of memory
    ASSERT_EQ(send(worker_.get(), words, 24, 0), 24);
    ASSERT_EQ(CodeOfRequest(), ErrorCode::kDataLoss);
  }
}

/// Sends a well-formed reply with `count` descriptors.
void SendWithDescriptors(int socket, int count) {
  struct {
    uint32_t magic = 0x7a64'6670, error_bytes = 0;
    int64_t size_bytes = kSize;
    char error[480] = {};
  } wire;
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
  iovec part{&wire, sizeof(wire)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(static_cast<size_t>(count) * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(static_cast<size_t>(count) * sizeof(int));
    for (int i = 0; i < count; ++i) {
      std::memcpy(CMSG_DATA(header) + i * static_cast<int>(sizeof(int)), &socket, sizeof(int));
    }
  }
  ASSERT_EQ(sendmsg(socket, &message, 0), ssize_t{sizeof(wire)});
}

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

TEST_F(DescriptorTest, TooManyOrNoDescriptorsAreRefusedAndNoneStaysOpen) {
  const size_t before = OpenDescriptors();
  for (const int count : {0, 2, 3, 8}) {
    SendWithDescriptors(daemon_.get(), count);
    EXPECT_EQ(CodeOfReply(), ErrorCode::kDataLoss) << count;
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(DescriptorTest, DescriptorsThatAWorkerSendsAreDropped) {
  const size_t before = OpenDescriptors();
  SendWithDescriptors(worker_.get(), 1);
  EXPECT_EQ(CodeOfRequest(), ErrorCode::kDataLoss);
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(DescriptorTest, ReachingTheLimitOfOpenFilesIsAnErrorThatSaysSo) {
  SendWithDescriptors(daemon_.get(), 1);
  rlimit old_limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old_limit), 0);
  const FileDescriptor lowest_free(dup(worker_.get()));
  rlimit limit = old_limit;
  limit.rlim_cur = static_cast<rlim_t>(lowest_free.get());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  FileDescriptor fd;
  const Error error = ErrorOf([&] { ReceiveReply(worker_.get(), fd, kTimeoutMs); });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old_limit), 0);
  EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
  EXPECT_NE(std::string(error.what()).find("ulimit -n"), std::string::npos);
}

TEST_F(DescriptorTest, AListenerIsReachedAndPrivate) {
  const std::string path = folder_ + "/s";
  const FileDescriptor listener = ListenUnix(path);
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  const FileDescriptor client = ConnectUnix(path);
  const FileDescriptor accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  SendRequest(client.get(), {9, MemoryKind::kSlot, 1, 0}, kTimeoutMs);
  DescriptorRequest request;
  ASSERT_TRUE(ReceiveRequest(accepted.get(), request, kTimeoutMs));
  EXPECT_EQ(request.token, 9u);
}

TEST_F(DescriptorTest, ALivingListenerIsNotReplaced) {
  const std::string path = folder_ + "/s";
  const FileDescriptor listener = ListenUnix(path);
  EXPECT_EQ(ErrorOf([&] { ListenUnix(path); }).code(), ErrorCode::kAlreadyExists);
  EXPECT_TRUE(ConnectUnix(path).valid());
}

TEST_F(DescriptorTest, TheSocketOfADeadProcessIsReplaced) {
  const std::string path = folder_ + "/s";
  { const FileDescriptor dead = ListenUnix(path); }
  ASSERT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(ErrorOf([&] { ConnectUnix(path); }).code(), ErrorCode::kUnavailable);
  const FileDescriptor listener = ListenUnix(path);
  EXPECT_TRUE(ConnectUnix(path).valid());
}

TEST_F(DescriptorTest, AFileInTheWayIsNotDeleted) {
  const std::string path = folder_ + "/notes";
  std::ofstream(path) << "keep me";
  EXPECT_EQ(ErrorOf([&] { ListenUnix(path); }).code(), ErrorCode::kAlreadyExists);
  EXPECT_EQ(std::filesystem::file_size(path), 7u);
}

TEST_F(DescriptorTest, NobodyListeningIsUnavailable) {
  EXPECT_EQ(ErrorOf([&] { ConnectUnix(folder_ + "/none"); }).code(), ErrorCode::kUnavailable);
}

TEST_F(DescriptorTest, APathThatIsTooLongIsNamedWithBothLengths) {
  const std::string path(kSocketPathBytesMax + 1, 'p');
  for (const auto& body : {+[](const std::string& p) { ListenUnix(p); },
                           +[](const std::string& p) { ConnectUnix(p); }}) {
    const Error error = ErrorOf([&] { body(path); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("108"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("107"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace zerod
