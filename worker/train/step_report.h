#pragma once

#include <cstdint>

namespace zerod::train {

/// What one training step showed.
struct StepReport {
  int64_t step = 0;  ///< steps taken, this one included
  double loss = 0;   ///< mean over ranks and micro-batches, nats per token
  double grad_norm = 0;
  double tokens_per_s = 0;  ///< of all ranks together
  double step_ms = 0;
  bool skipped = false;  ///< the norm wasn't finite: no parameter changed
};

}  // namespace zerod::train
