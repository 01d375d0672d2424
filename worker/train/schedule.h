#pragma once

#include <cstdint>

namespace zerod::train {

/// Learning rate over time: a linear rise to `lr`, then constant.
struct Schedule {
  double lr = 1e-3;
  int64_t warmup_steps = 0;

  /// Rate of a step, counted from 0. The last step of the warm-up is the first at the full rate.
  double RateAt(int64_t step) const;
};

}  // namespace zerod::train
