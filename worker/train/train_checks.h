#pragma once

#include "worker/train/train_options.h"

namespace zerod::train {

inline constexpr int64_t kThreadsMax = 1024;

/// Throws Error(kInvalidArgument) that names the first option which has an impossible value or
/// doesn't go with another.
void CheckTrainOptions(const TrainOptions& options);

}  // namespace zerod::train
