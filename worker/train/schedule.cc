#include "worker/train/schedule.h"

#include <cmath>
#include <numbers>

namespace zerod::train {

double Schedule::RateAt(int64_t step) const {
  if (step + 1 < warmup_steps) {
    return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  if (decay == Decay::kConstant || step < warmup_steps) return lr;
  if (step >= end_step) return min_lr;
  const double part =
      static_cast<double>(step - warmup_steps) / static_cast<double>(end_step - warmup_steps);
  const double left =
      decay == Decay::kLinear ? 1 - part : (1 + std::cos(part * std::numbers::pi)) / 2;
  return min_lr + (lr - min_lr) * left;
}

}  // namespace zerod::train
