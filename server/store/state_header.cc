#include "server/store/state_header.h"

#include <algorithm>

namespace zerod {

void SetJobId(StateHeader& header, std::string_view job_id) {
  const size_t length = std::min(job_id.size(), sizeof(header.job_id) - 1);
  std::copy_n(job_id.begin(), length, header.job_id);
  header.job_id[length] = '\0';
}

}  // namespace zerod
