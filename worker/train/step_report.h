#pragma once

#include <cstdint>

namespace zerod::train {

/// What one training step showed.
struct StepReport {
  int64_t step = 0;  ///< steps taken, this one included
  double loss = 0;   ///< mean over the positions that count, nats per token; NaN without any
  double grad_norm = 0;
  double tokens_per_s = 0;  ///< of all ranks together
  double step_ms = 0;
  bool skipped = false;    ///< the norm wasn't finite: no parameter changed
  bool uncounted = false;  ///< no position counts: there is no loss, and the gradient is zero
};

}  // namespace zerod::train
