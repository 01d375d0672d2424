#include "server/store/model_file.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/contract/error.h"

namespace zerod {
namespace {

[[noreturn]] void Refuse(const std::string& reason) {
  throw Error(ErrorCode::kFailedPrecondition, reason);
}

[[noreturn]] void RefuseErrno(int error_number) {
  const std::string text = ErrnoText(error_number);
  if (error_number == ENOENT || error_number == ENOTDIR) {
    throw Error(ErrorCode::kNotFound, text + "; the file must be at the same path on every node");
  }
  Refuse(text + "; the user that runs zerod must be able to read it");
}

/// Empty, with errno set, where it can't be resolved.
std::string Resolve(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> resolved(realpath(path.c_str(), nullptr),
                                                             &std::free);
  return resolved ? std::string(resolved.get()) : std::string();
}

bool LiesIn(const std::string& resolved, const std::string& root) {
  const std::string folder = Resolve(root);
  if (folder.empty()) return false;
  return folder == "/" || resolved.starts_with(folder + "/");
}

void CheckAllowed(const std::string& resolved, const std::vector<std::string>& roots) {
  if (std::ranges::any_of(roots, [&](const auto& root) { return LiesIn(resolved, root); })) return;
  std::string list;
  for (const std::string& root : roots) list += (list.empty() ? "" : ", ") + root;
  Refuse(Concat("it lies at ", resolved, ", outside of zerod's --model-root (", list,
                "); move it there or start zerod with its folder as --model-root"));
}

/// Where an open file lies now.
std::string PlaceOf(const FileDescriptor& fd) {
  char place[PATH_MAX];
  const std::string link = Concat("/proc/self/fd/", fd.get());
  const ssize_t length = readlink(link.c_str(), place, sizeof(place));
  return length < 0 ? std::string() : std::string(place, static_cast<size_t>(length));
}

}  // namespace

ModelFile::ModelFile(const std::string& path, const std::vector<std::string>& roots) {
  if (roots.empty()) {
    Refuse(
        "zerod was started without --model-root, so it reads no files; start it with the "
        "folder of the weights as --model-root");
  }
  const std::string resolved = Resolve(path);
  if (resolved.empty()) RefuseErrno(errno);
  CheckAllowed(resolved, roots);
  // O_NONBLOCK: opening a FIFO that nobody writes to returns at once. It doesn't matter to a
  // regular file.
  fd_ = FileDescriptor(
      open(resolved.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (!fd_.valid()) RefuseErrno(errno);
  // A folder on the way may have been replaced by a link since it was resolved.
  CheckAllowed(PlaceOf(fd_), roots);
  struct stat status {};
  if (fstat(fd_.get(), &status) != 0) RefuseErrno(errno);
  if (!S_ISREG(status.st_mode)) Refuse("it is no regular file; give the file with the weights");
  size_bytes_ = status.st_size;
}

void ModelFile::Read(int64_t offset_bytes, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = pread(fd_.get(), out.data(), out.size(), offset_bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw Error(ErrorCode::kDataLoss,
                  Concat("reading byte ", offset_bytes, " failed: ", ErrnoText(errno)));
    }
    if (count == 0) {
      throw Error(ErrorCode::kDataLoss,
                  Concat("it ends at byte ", offset_bytes, " now and had ", size_bytes_,
                         " when it was opened; leave it alone while it is read"));
    }
    offset_bytes += count;
    out = out.subspan(static_cast<size_t>(count));
  }
}

}  // namespace zerod
