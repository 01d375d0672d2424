#pragma once

#include <cstdint>

#include "worker/neox/data.h"
#include "worker/neox/forward_context.h"
#include "worker/neox/sampling.h"
#include "worker/sharded/sharded_sequential.h"
#include "worker/train/data_place.h"
#include "worker/train/step_report.h"
#include "worker/train/stop_signals.h"
#include "worker/train/train_options.h"

namespace zerod::train {

/// How this rank's part of the batches lies among all. Throws Error(kInvalidArgument) if a batch
/// can't be divided evenly.
neox::BatchShape ShapeOf(const TrainOptions& options);

/// Which tokens the steps read.
DataPlace PlaceOf(const TrainOptions& options, const neox::TokenSource& source);

/// Trains and evaluates this rank's part of every batch. All ranks call the same methods in the
/// same order. Errors are those of the model and the data.
class Trainer {
 public:
  /// The references outlive it. `forward` is the one that the model's layers share.
  Trainer(const TrainOptions& options, const neox::TokenSource& source,
          neox::ForwardContext& forward, ShardedSequential& model);

  struct Outcome {
    StepReport report;
    int stop_signal = 0;  ///< the one that some rank got; 0: go on
  };

  /// Step `step`, counted from 0: forward and backward of the micro-batches, then the optimizer.
  Outcome Step(int64_t step, const StopSignals& signals);

  struct Evaluation {
    double loss = 0;  ///< mean over all held-out targets that count
    int stop_signal = 0;
  };

  /// Forward over the held-out samples, divided among the ranks. Throws Error (kDataLoss) if no
  /// target counts.
  Evaluation Evaluate(const StopSignals& signals);

 private:
  double Accumulate(int64_t step, int64_t micro_batch);
  StepOptions MakeStepOptions(int64_t step, int64_t counted) const;

  const TrainOptions& options_;
  const neox::BatchShape shape_;
  const neox::TokenSource& source_;
  neox::ForwardContext& forward_;
  ShardedSequential& model_;
};

}  // namespace zerod::train
