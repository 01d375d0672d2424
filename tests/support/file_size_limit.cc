#include "tests/support/file_size_limit.h"

#include <csignal>

namespace zerod {

FileSizeLimit::FileSizeLimit(rlim_t bytes) {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGXFSZ, &ignore, nullptr);  // else a write beyond the limit ends the process
  getrlimit(RLIMIT_FSIZE, &limit_before_);
  const rlimit limit{bytes, limit_before_.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
}

FileSizeLimit::~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &limit_before_); }

}  // namespace zerod
