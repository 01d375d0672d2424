#pragma once

#include <sys/resource.h>

namespace zerod {

/// While it lives, no file of this process grows beyond a size: writes fail as on a full disk, with
/// EFBIG.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes);
  ~FileSizeLimit();
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit limit_before_{};
};

}  // namespace zerod
