#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace zerod {

/// Highest resident bytes that a process ever had, as the kernel recorded it: its own memory, all
/// shared pages that it touched, and its program files. 0 if it is gone.
int64_t PeakResidentBytes(pid_t pid);

/// Bytes that a process alone holds besides the files that it maps (programs and libraries): its
/// own memory and pages of shared memory that nobody else touches. Together with
/// PeakResidentBytes() of the process at the other end no byte is left out. 0 if it is gone.
int64_t OwnBytes(pid_t pid);

/// Highest OwnBytes() of some processes, as seen by whoever samples. A plain object.
class MemoryPeaks {
 public:
  explicit MemoryPeaks(std::vector<pid_t> pids) : pids_(std::move(pids)), bytes_(pids_.size()) {}

  void Sample();
  int64_t bytes(size_t index) const { return bytes_[index]; }

 private:
  std::vector<pid_t> pids_;
  std::vector<int64_t> bytes_;
};

}  // namespace zerod
