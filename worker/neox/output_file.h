#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "proto/contract/error.h"

namespace zerod::neox {

/// The error of a write that the operating system refused, with its errno value: other ranks are
/// told the number.
class WriteError : public Error {
 public:
  /// Says "cannot WHAT PATH: REASON".
  WriteError(const std::string& what, const std::string& path, int reason);
  int reason() const noexcept { return reason_; }

 private:
  int reason_;
};

/// A file that appears under its name whole or not at all: written as PATH.zerod-part in the same
/// folder, which the destructor removes unless Publish renamed it. Every failure throws WriteError.
class OutputFile {
 public:
  /// What the names of unfinished files end with.
  static constexpr const char* kPartSuffix = ".zerod-part";

  /// Takes `size_bytes` of the disk at once where the file system can: one that is too full is
  /// found before anything is computed.
  OutputFile(std::string path, uint64_t size_bytes);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }

  void WriteAt(uint64_t offset_bytes, std::span<const std::byte> bytes);

  /// Everything written is on the disk.
  void Sync();

  /// Renames it, replacing what had the name. The folder's own entry is on the disk after
  /// SyncFolder.
  void Publish();

 private:
  std::string path_;
  std::string part_path_;
  int fd_ = -1;
  bool published_ = false;
};

/// Renames and new files in a folder are on the disk.
void SyncFolder(const std::string& folder);

}  // namespace zerod::neox
