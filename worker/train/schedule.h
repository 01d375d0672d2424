#pragma once

#include <cstdint>

namespace zerod::train {

/// What the learning rate does after the warm-up.
enum class Decay { kConstant, kLinear, kCosine };

/// Learning rate over time: a linear rise to `lr`, then constant or a fall to `min_lr`. Depends on
/// the absolute step alone, so that a job that goes on has the rates of one that never stopped.
struct Schedule {
  double lr = 1e-3;
  int64_t warmup_steps = 0;
  Decay decay = Decay::kConstant;
  double min_lr = 0.0;   ///< from end_step on
  int64_t end_step = 0;  ///< where the fall ends; counts only with a fall

  /// Rate of a step, counted from 0. The last step of the warm-up is the first at the full rate;
  /// the fall begins with the step after the warm-up, which still has the full rate.
  double RateAt(int64_t step) const;
};

}  // namespace zerod::train
