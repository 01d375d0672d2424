#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/shared_memory.h"

namespace zerod {

/// A file of weights that a worker named, open for reading. Threads may read at the same time.
///
/// Only regular files that lie, with every symbolic link resolved, in one of the folders that
/// whoever started the daemon allowed. Opening never waits for a FIFO or a device. Errors say what
/// is wrong and what to do; the caller adds node, path and tensor.
class ModelFile {
 public:
  /// `path` is absolute; `roots` are the allowed folders. Throws Error: kNotFound without the file,
  /// kFailedPrecondition when it isn't allowed, isn't regular or can't be opened.
  ModelFile(const std::string& path, const std::vector<std::string>& roots);

  /// When it was opened.
  int64_t size_bytes() const { return size_bytes_; }

  /// Fills `out` from byte `offset_bytes` on. Throws Error (kDataLoss) when the file ends earlier
  /// (it was cut since) or the disk fails.
  void Read(int64_t offset_bytes, std::span<std::byte> out) const;

 private:
  FileDescriptor fd_;
  int64_t size_bytes_ = 0;
};

}  // namespace zerod
