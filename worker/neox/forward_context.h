#pragma once

#include <cstdint>

#include "worker/neox/key_value_cache.h"

namespace zerod::neox {

/// What tells the forwards of a training run apart.
struct TrainingForward {
  uint64_t seed = 0;
  int64_t step = 0;         ///< steps taken before
  int64_t micro_batch = 0;  ///< within the step
  int64_t dp_index = 0;
};

/// What the layers of a model must know of the running forward besides its input. All layers of a
/// model share one object (LayerContext); whoever runs the model says before each forward what it
/// is for. Until then it is an evaluation. One thread.
class ForwardContext {
 public:
  /// Dropout is on. Its masks depend on `forward` and the config alone, so that a rerun or a
  /// resumed run draws the same: seeds LibTorch's default generator. A recomputation in the
  /// backward (zerod::Checkpoint) repeats them; the backward must come before the next Begin.
  void BeginTraining(const TrainingForward& forward);

  /// Dropout is off.
  void BeginEvaluation();

  /// Dropout is off, and the input's tokens follow those in `cache`, which takes them in. The
  /// result is that of the last position alone: logits [1, 1, V]. `cache` outlives the forward;
  /// afterwards the caller advances it.
  void BeginDecoding(KeyValueCache& cache);

  bool training() const { return training_; }

  /// Null unless decoding.
  KeyValueCache* cache() const { return cache_; }

 private:
  bool training_ = false;
  KeyValueCache* cache_ = nullptr;
};

}  // namespace zerod::neox
