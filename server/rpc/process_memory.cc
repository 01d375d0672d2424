#include "server/rpc/process_memory.h"

#include <fstream>
#include <string>

namespace zerod {

int64_t ProcessPssBytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string word;
  while (rollup >> word) {
    int64_t kibibytes = 0;
    if (word == "Pss:" && rollup >> kibibytes) return kibibytes * 1024;
  }
  return -1;
}

}  // namespace zerod
