#include "worker/neox/input_file.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/contract/error.h"

namespace zerod::neox {

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a FIFO by mistake must not hang. It means nothing for regular files.
  fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) {
    const int reason = errno;
    throw Error(reason == ENOENT || reason == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kDataLoss,
                Concat("cannot open ", path_, ": ", ErrnoText(reason)));
  }
  struct stat info {};
  const bool known = fstat(fd_, &info) == 0;
  if (!known || !S_ISREG(info.st_mode)) {
    close(fd_);
    throw Error(ErrorCode::kDataLoss, Concat(path_, " is not a regular file"));
  }
  size_bytes_ = static_cast<uint64_t>(info.st_size);
}

InputFile::~InputFile() {
  if (fd_ >= 0) close(fd_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_bytes_(other.size_bytes_) {}

void InputFile::ReadAt(uint64_t offset_bytes, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = pread(fd_, out.data(), out.size(), static_cast<off_t>(offset_bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw Error(ErrorCode::kDataLoss, Concat("cannot read ", path_, ": ", ErrnoText(errno)));
    }
    if (count == 0) {
      throw Error(ErrorCode::kDataLoss, Concat(path_, " ends at byte ", offset_bytes, ", ",
                                               out.size(), " bytes too early; was it truncated?"));
    }
    offset_bytes += static_cast<uint64_t>(count);
    out = out.subspan(static_cast<size_t>(count));
  }
}

std::string InputFile::ReadAll(uint64_t limit_bytes) const {
  if (size_bytes_ > limit_bytes) {
    throw Error(ErrorCode::kDataLoss, Concat(path_, " has ", size_bytes_, " bytes; more than ",
                                             limit_bytes, " are not plausible here"));
  }
  std::string text(size_bytes_, '\0');
  ReadAt(0, std::as_writable_bytes(std::span(text)));
  return text;
}

bool PathExists(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

}  // namespace zerod::neox
