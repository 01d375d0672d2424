#include "proto/contract/shared_memory.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/contract/error.h"

namespace zerod {
namespace {

constexpr int64_t kHugePageBytes = 2 << 20;
constexpr int64_t kStatBlockBytes = 512;

[[noreturn]] void ThrowErrno(const std::string& what) {
  const int error = errno;
  const bool out_of_descriptors = error == EMFILE || error == ENFILE;
  const bool exhausted = out_of_descriptors || error == ENOMEM || error == ENOSPC;
  throw Error(exhausted ? ErrorCode::kResourceExhausted : ErrorCode::kInternal,
              Concat(what, ": ", ErrnoText(error),
                     out_of_descriptors ? "; raise the limit of open files (ulimit -n)" : ""));
}

Mapping Map(int fd, int64_t size_bytes, Access access) {
  const int protection = access == Access::kReadWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  void* address = mmap(nullptr, static_cast<size_t>(size_bytes), protection, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    ThrowErrno(Concat("can't map ", size_bytes, " bytes of shared memory"));
  }
  return Mapping(address, static_cast<size_t>(size_bytes));
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

Mapping::Mapping(Mapping&& other) noexcept
    : address_(std::exchange(other.address_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    if (address_ != nullptr) munmap(address_, size_bytes_);
    address_ = std::exchange(other.address_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
  }
  return *this;
}

Mapping::~Mapping() {
  if (address_ != nullptr) munmap(address_, size_bytes_);
}

SharedMemory SharedMemory::Create(const std::string& label, int64_t size_bytes, bool huge_pages) {
  ZEROD_CHECK(size_bytes > 0, "shared memory ", label, " of ", size_bytes, " bytes");
  SharedMemory memory;
  memory.fd_ = FileDescriptor(memfd_create(label.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.fd_.valid()) ThrowErrno(Concat("can't create shared memory ", label));
  if (ftruncate(memory.fd_.get(), size_bytes) != 0) {
    ThrowErrno(Concat("can't give shared memory ", label, " a size of ", size_bytes, " bytes"));
  }
  if (fcntl(memory.fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    ThrowErrno(Concat("can't seal shared memory ", label));
  }
  memory.mapping_ = Map(memory.fd_.get(), size_bytes, Access::kReadWrite);
  if (huge_pages && size_bytes >= kHugePageBytes) {
    // Advice only: a kernel without huge pages for shared memory refuses it, and small pages work.
    madvise(memory.data(), static_cast<size_t>(size_bytes), MADV_HUGEPAGE);
  }
  return memory;
}

FileDescriptor SharedMemory::Share(Access access) const {
  ZEROD_CHECK(valid(), "sharing memory that was never created");
  // A duplicate would share the access mode; only a new open file can have less.
  const std::string path = Concat("/proc/self/fd/", fd_.get());
  FileDescriptor shared(access == Access::kReadWrite ? fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0)
                                                     : open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!shared.valid()) ThrowErrno("can't make a second descriptor of shared memory");
  return shared;
}

void SharedMemory::CheckRange(int64_t offset_bytes, int64_t size_bytes) const {
  const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  ZEROD_CHECK(offset_bytes % page_bytes == 0 && size_bytes % page_bytes == 0, "offset ",
              offset_bytes, ", size ", size_bytes);
  ZEROD_CHECK(
      offset_bytes >= 0 && size_bytes >= 0 && offset_bytes + size_bytes <= this->size_bytes(),
      "offset ", offset_bytes, ", size ", size_bytes, " of ", this->size_bytes());
}

void SharedMemory::Punch(int64_t offset_bytes, int64_t size_bytes) {
  CheckRange(offset_bytes, size_bytes);
  if (size_bytes == 0) return;
  if (fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset_bytes, size_bytes) !=
      0) {
    ThrowErrno(Concat("can't give back ", size_bytes, " bytes of shared memory"));
  }
}

void SharedMemory::Allocate(int64_t offset_bytes, int64_t size_bytes) const {
  CheckRange(offset_bytes, size_bytes);
  if (size_bytes == 0) return;
  while (fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, offset_bytes, size_bytes) != 0) {
    if (errno != EINTR)
      ThrowErrno(Concat("can't allocate ", size_bytes, " bytes of shared memory"));
  }
  // Kernels before 5.14 refuse it; the pages are then mapped when they are touched.
  madvise(data() + offset_bytes, static_cast<size_t>(size_bytes), MADV_POPULATE_WRITE);
}

int64_t SharedMemory::ResidentBytes() const {
  struct stat status {};
  if (fstat(fd_.get(), &status) != 0) ThrowErrno("can't ask for the size of shared memory");
  return static_cast<int64_t>(status.st_blocks) * kStatBlockBytes;
}

Mapping MapShared(const FileDescriptor& fd, int64_t size_bytes, Access access) {
  if (size_bytes <= 0) {
    throw Error(ErrorCode::kDataLoss, Concat("shared memory of ", size_bytes, " bytes"));
  }
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw Error(ErrorCode::kDataLoss, "the peer sent memory that isn't sealed against shrinking");
  }
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) ThrowErrno("can't ask for the size of shared memory");
  if (status.st_size < size_bytes) {
    throw Error(ErrorCode::kDataLoss, Concat("the peer sent ", status.st_size,
                                             " bytes of memory instead of ", size_bytes));
  }
  return Map(fd.get(), size_bytes, access);
}

Mapping ReserveNoAccess(int64_t size_bytes) {
  ZEROD_CHECK(size_bytes > 0, "reserve of ", size_bytes, " bytes");
  void* address = mmap(nullptr, static_cast<size_t>(size_bytes), PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    ThrowErrno(Concat("can't reserve ", size_bytes, " bytes of address space"));
  }
  return Mapping(address, static_cast<size_t>(size_bytes));
}

}  // namespace zerod
