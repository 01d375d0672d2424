#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace zerod {

/// Owns a file descriptor; closes it when destroyed.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// Owns a mapping; unmaps it when destroyed. Movable; the address doesn't change by a move.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* address, size_t size_bytes) : address_(address), size_bytes_(size_bytes) {}
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const { return static_cast<std::byte*>(address_); }
  size_t size_bytes() const { return size_bytes_; }
  std::span<std::byte> bytes() const { return {data(), size_bytes_}; }

 private:
  void* address_ = nullptr;
  size_t size_bytes_ = 0;
};

enum class Access { kReadOnly, kReadWrite };

/// A memfd that this process made: sealed against shrink, grow and further seals (an unsealed one
/// lets a peer's ftruncate kill us by SIGBUS), CLOEXEC, zero-filled, mapped read-write.
class SharedMemory {
 public:
  SharedMemory() = default;
  /// `label` shows in /proc/PID/maps. `huge_pages` advises transparent huge pages. Throws Error
  /// (kResourceExhausted, kInternal).
  static SharedMemory Create(const std::string& label, int64_t size_bytes, bool huge_pages = false);

  std::byte* data() const { return mapping_.data(); }
  int64_t size_bytes() const { return static_cast<int64_t>(mapping_.size_bytes()); }
  bool valid() const { return fd_.valid(); }

  /// A new descriptor of the same memory for a peer; read-only ones can't be mapped writable.
  FileDescriptor Share(Access access) const;

  /// Allocates and maps the pages of a range that is about to be written, at less cost than their
  /// faults one by one; what is there stays. Both page-aligned. Throws Error (kResourceExhausted).
  void Allocate(int64_t offset_bytes, int64_t size_bytes) const;

  /// Gives the pages of a range back to the system; they read as zero afterwards. Both
  /// page-aligned.
  void Punch(int64_t offset_bytes, int64_t size_bytes);

  /// Bytes of the memory that are resident now, whoever mapped them.
  int64_t ResidentBytes() const;

 private:
  void CheckRange(int64_t offset_bytes, int64_t size_bytes) const;

  FileDescriptor fd_;
  Mapping mapping_;
};

/// The other half: maps a descriptor that a peer shared. Refuses (kDataLoss) memory that isn't
/// sealed against shrinking or is smaller than `size_bytes`.
Mapping MapShared(const FileDescriptor& fd, int64_t size_bytes, Access access);

/// Reserves address space that faults on every access.
Mapping ReserveNoAccess(int64_t size_bytes);

}  // namespace zerod
