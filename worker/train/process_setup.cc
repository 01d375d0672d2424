#include "worker/train/process_setup.h"

#include <ATen/Parallel.h>
#include <malloc.h>
#include <sys/resource.h>

namespace zerod::train {

void SetUpProcess(int64_t threads) { at::set_num_threads(static_cast<int>(threads)); }

ProcessUse MeasureProcess() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return {use.ru_minflt, use.ru_maxrss * 1024};
}

}  // namespace zerod::train
