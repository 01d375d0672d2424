#include "worker/neox/output_file.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace zerod::neox {
namespace {

int Retry(auto call) {
  int result = 0;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

}  // namespace

WriteError::WriteError(const std::string& what, const std::string& path, int reason)
    : Error(ErrorCode::kInternal, Concat("cannot ", what, " ", path, ": ", ErrnoText(reason))),
      reason_(reason) {}

OutputFile::OutputFile(std::string path, uint64_t size_bytes)
    : path_(std::move(path)), part_path_(path_ + kPartSuffix) {
  fd_ = open(part_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd_ < 0) throw WriteError("create", part_path_, errno);
  const auto size = static_cast<off_t>(size_bytes);
  // Not posix_fallocate: where the file system can't, that writes every block.
  if (size == 0 || Retry([&] { return fallocate(fd_, 0, 0, size); }) == 0) return;
  const int reason = errno;
  if (reason == EOPNOTSUPP || reason == ENOSYS) return;
  close(fd_);
  unlink(part_path_.c_str());
  throw WriteError(Concat("allocate ", size_bytes, " bytes for"), path_, reason);
}

OutputFile::~OutputFile() {
  close(fd_);
  if (!published_) unlink(part_path_.c_str());
}

void OutputFile::WriteAt(uint64_t offset_bytes, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset_bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw WriteError("write", path_, count < 0 ? errno : ENOSPC);
    offset_bytes += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void OutputFile::Sync() {
  if (Retry([&] { return fsync(fd_); }) != 0) throw WriteError("sync", path_, errno);
}

void OutputFile::Publish() {
  if (rename(part_path_.c_str(), path_.c_str()) != 0) {
    throw WriteError("rename the finished file to", path_, errno);
  }
  published_ = true;
}

void SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw WriteError("open the folder", folder, errno);
  const int result = Retry([&] { return fsync(fd); });
  const int reason = errno;
  close(fd);
  // Some network file systems can't and don't need to.
  if (result != 0 && reason != EINVAL && reason != ENOTSUP) {
    throw WriteError("sync the folder", folder, reason);
  }
}

}  // namespace zerod::neox
