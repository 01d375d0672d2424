#include "tests/support/process_memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace zerod {
namespace {

constexpr int64_t kKilobyte = 1024;

/// What /proc/PID/smaps names: shared memory by its memfd, our own without a file.
bool IsShared(const std::string& path) { return path.starts_with("/memfd:"); }
bool IsFile(const std::string& path) { return path.starts_with("/") && !IsShared(path); }

}  // namespace

int64_t PeakResidentBytes(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * kKilobyte;
  }
  return 0;
}

int64_t OwnBytes(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps");
  std::string path;
  int64_t bytes = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (!name.ends_with(":")) {  // a mapping: addresses, access, offset, device, inode, path
      std::string skipped;
      path.clear();
      words >> skipped >> skipped >> skipped >> skipped >> path;
    } else if (!IsFile(path) && name.starts_with("Private_") && !name.ends_with("Hugetlb:")) {
      int64_t kilobytes = 0;
      words >> kilobytes;
      bytes += kilobytes * kKilobyte;
    }
  }
  return bytes;
}

void MemoryPeaks::Sample() {
  for (size_t i = 0; i < pids_.size(); ++i) {
    bytes_[i] = std::max(bytes_[i], OwnBytes(pids_[i]));
  }
}

}  // namespace zerod
