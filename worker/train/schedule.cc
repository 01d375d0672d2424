#include "worker/train/schedule.h"

namespace zerod::train {

double Schedule::RateAt(int64_t step) const {
  if (step + 1 >= warmup_steps) return lr;
  return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
}

}  // namespace zerod::train
