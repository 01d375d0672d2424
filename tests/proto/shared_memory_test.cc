#include "proto/contract/shared_memory.h"

#include <cerrno>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/contract/error.h"
#include "tests/proto/child_process.h"

namespace zerod {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kSize = 16 * kPage;

ErrorCode CodeOfMapping(const FileDescriptor& fd, int64_t size_bytes, Access access) {
  try {
    MapShared(fd, size_bytes, access);
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "mapped";
  return ErrorCode::kInternal;
}

TEST(SharedMemory, StartsAsZerosAndIsSeenByAPeerThatMapsIt) {
  const SharedMemory memory = SharedMemory::Create("zerod-test", kSize);
  const Mapping peer = MapShared(memory.Share(Access::kReadOnly), kSize, Access::kReadOnly);
  ASSERT_EQ(peer.size_bytes(), static_cast<size_t>(kSize));
  for (int64_t i = 0; i < kSize; ++i) ASSERT_EQ(peer.data()[i], std::byte{0}) << i;
  memory.data()[kSize - 1] = std::byte{42};
  EXPECT_EQ(peer.data()[kSize - 1], std::byte{42});
}

TEST(SharedMemory, CanNotBeResizedByAPeer) {
  const SharedMemory memory = SharedMemory::Create("zerod-test", kSize);
  const FileDescriptor peer = memory.Share(Access::kReadWrite);
  EXPECT_EQ(ftruncate(peer.get(), kPage), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(ftruncate(peer.get(), 2 * kSize), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(fcntl(peer.get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
}

TEST(SharedMemory, ReadOnlyDescriptorsCanNotBeMappedWritable) {
  const SharedMemory memory = SharedMemory::Create("zerod-test", kSize);
  const FileDescriptor peer = memory.Share(Access::kReadOnly);
  EXPECT_EQ(CodeOfMapping(peer, kSize, Access::kReadWrite), ErrorCode::kInternal);
  const Mapping mapping = MapShared(peer, kSize, Access::kReadOnly);
  EXPECT_EQ(mprotect(mapping.data(), kSize, PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(errno, EACCES);
}

TEST(SharedMemory, WritesOfAPeerArriveThroughAReadWriteDescriptor) {
  const SharedMemory memory = SharedMemory::Create("zerod-test", kSize);
  ChildProcess writer([&memory] {
    const Mapping mapping = MapShared(memory.Share(Access::kReadWrite), kSize, Access::kReadWrite);
    mapping.data()[kPage] = std::byte{7};
    return 0;
  });
  ASSERT_EQ(writer.Wait(), 0);
  EXPECT_EQ(memory.data()[kPage], std::byte{7});
}

TEST(SharedMemory, PunchGivesPagesBackAndTheyReadAsZero) {
  SharedMemory memory = SharedMemory::Create("zerod-test", kSize);
  EXPECT_EQ(memory.ResidentBytes(), 0);
  for (int64_t i = 0; i < kSize; ++i) memory.data()[i] = std::byte{1};
  EXPECT_EQ(memory.ResidentBytes(), kSize);
  memory.Punch(4 * kPage, 8 * kPage);
  EXPECT_EQ(memory.ResidentBytes(), 8 * kPage);
  EXPECT_EQ(memory.data()[4 * kPage - 1], std::byte{1});
  EXPECT_EQ(memory.data()[12 * kPage], std::byte{1});
  EXPECT_EQ(memory.ResidentBytes(), 8 * kPage);
  EXPECT_EQ(memory.data()[4 * kPage], std::byte{0});
  EXPECT_EQ(memory.data()[12 * kPage - 1], std::byte{0});
}

TEST(SharedMemory, AllocatedPagesAreResidentAndKeepWhatTheyHold) {
  SharedMemory memory = SharedMemory::Create("zerod-test", kSize);
  memory.data()[6 * kPage] = std::byte{7};
  memory.Allocate(4 * kPage, 8 * kPage);
  EXPECT_EQ(memory.ResidentBytes(), 8 * kPage);
  EXPECT_EQ(memory.data()[6 * kPage], std::byte{7});
  EXPECT_EQ(memory.data()[11 * kPage], std::byte{0});
  memory.Allocate(0, 0);
  EXPECT_EQ(memory.ResidentBytes(), 8 * kPage);
}

TEST(SharedMemory, HugePagesAreAdviceThatNeverFails) {
  constexpr int64_t kLarge = 8 << 20;
  const SharedMemory memory = SharedMemory::Create("zerod-test", kLarge, true);
  memory.data()[kLarge - 1] = std::byte{9};
  EXPECT_EQ(memory.data()[0], std::byte{0});
  EXPECT_EQ(memory.data()[kLarge - 1], std::byte{9});
}

TEST(SharedMemory, DescriptorsCloseWhenAProgramIsStarted) {
  const SharedMemory memory = SharedMemory::Create("zerod-test", kSize);
  for (const Access access : {Access::kReadOnly, Access::kReadWrite}) {
    EXPECT_EQ(fcntl(memory.Share(access).get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
}

TEST(SharedMemory, UnsealedMemoryOfAPeerIsRefused) {
  const FileDescriptor unsealed(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), kSize), 0);
  EXPECT_EQ(CodeOfMapping(unsealed, kSize, Access::kReadOnly), ErrorCode::kDataLoss);
}

TEST(SharedMemory, MemoryThatIsSmallerThanPromisedIsRefused) {
  const SharedMemory memory = SharedMemory::Create("zerod-test", kSize);
  EXPECT_EQ(CodeOfMapping(memory.Share(Access::kReadOnly), kSize + 1, Access::kReadOnly),
            ErrorCode::kDataLoss);
  EXPECT_EQ(CodeOfMapping(memory.Share(Access::kReadOnly), 0, Access::kReadOnly),
            ErrorCode::kDataLoss);
}

TEST(SharedMemory, DescriptorsThatAreNotMemoryAreRefused) {
  const FileDescriptor null_device(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(CodeOfMapping(null_device, kSize, Access::kReadOnly), ErrorCode::kDataLoss);
}

TEST(SharedMemoryDeathTest, ReservedAddressesFaultOnAccess) {
  const Mapping reserve = ReserveNoAccess(kSize);
  EXPECT_DEATH(*static_cast<volatile std::byte*>(reserve.data() + kPage), "");
}

TEST(SharedMemory, MovingKeepsTheAddress) {
  SharedMemory memory = SharedMemory::Create("zerod-test", kSize);
  std::byte* const address = memory.data();
  const SharedMemory moved = std::move(memory);
  EXPECT_EQ(moved.data(), address);
  moved.data()[0] = std::byte{1};
}

}  // namespace
}  // namespace zerod
