#pragma once

#include "worker/train/train_options.h"

namespace zerod::train {

/// One rank of a training run, from reading the model's files to detaching. Returns the exit code:
/// 0, or 128 + n after a signal. Throws Error; the job is kept.
int Run(const TrainOptions& options);

}  // namespace zerod::train
