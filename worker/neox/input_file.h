#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace zerod::neox {

/// A regular file opened for reading; owns the descriptor. Reads by position, so that several
/// threads may share it and a file that shrinks while it is open is an error, not a signal.
/// Every failure throws Error with the path: kNotFound if there is no such file, else kDataLoss.
class InputFile {
 public:
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }

  /// Size when the file was opened.
  uint64_t size_bytes() const { return size_bytes_; }

  /// Fills `out` from `offset_bytes` on.
  void ReadAt(uint64_t offset_bytes, std::span<std::byte> out) const;

  /// The whole file; refuses files larger than `limit_bytes`.
  std::string ReadAll(uint64_t limit_bytes) const;

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_bytes_ = 0;
};

/// Whether something exists at `path`, whatever it is; a link that leads nowhere does, so that
/// opening it says so.
bool PathExists(const std::string& path);

}  // namespace zerod::neox
