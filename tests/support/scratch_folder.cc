#include "tests/support/scratch_folder.h"

#include <cstdlib>
#include <stdexcept>

namespace zerod {

ScratchFolder::ScratchFolder() {
  std::string pattern = "/tmp/zerod-test-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = pattern;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace zerod
