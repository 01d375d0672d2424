#pragma once

#include "worker/train/train_options.h"

namespace zerod::train {

inline constexpr int64_t kThreadsMax = 1024;
inline constexpr int64_t kStepsMax = 1'000'000'000'000'000;

/// Throws Error(kInvalidArgument) that names the first option which has an impossible value or
/// doesn't go with another.
void CheckTrainOptions(const TrainOptions& options);

/// Throws Error(kInvalidArgument) if the samples of so many steps can't be counted.
void CheckSampleCount(int64_t steps, int64_t batch);

/// Throws Error(kInvalidArgument) if the logits of one micro-batch are larger than the memory of
/// this machine: such a step could only be killed. The batch is one that can be divided.
void CheckBatchMemory(const TrainOptions& options, int64_t vocabulary, int64_t memory_bytes);

}  // namespace zerod::train
