#include "proto/contract/standard_output.h"

#include <cerrno>
#include <iostream>

#include "proto/contract/error.h"

namespace zerod {

void WriteStandardOutput(const std::string& text) {
  errno = 0;
  std::cout << text << std::flush;
  if (std::cout.good()) return;
  throw Error(ErrorCode::kInternal,
              Concat("can't write to standard output: ", ErrnoText(errno == 0 ? EIO : errno)));
}

}  // namespace zerod
