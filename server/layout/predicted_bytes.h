#pragma once

#include <cstdint>
#include <span>

#include "proto/contract/plan.h"

namespace zerod {

/// Bytes that one rank holds of a model, by class; padding included, header pages not.
struct PredictedBytes {
  int64_t parameters = 0;       ///< its shards in their own dtype
  int64_t gradients = 0;        ///< accumulators of its trainable shards
  int64_t optimizer_state = 0;  ///< two moments, and the master where its dtype differs
  int64_t slots = 0;            ///< gradient slots: full size, of the largest layer

  int64_t Total() const { return parameters + gradients + optimizer_state + slots; }
  bool operator==(const PredictedBytes&) const = default;
};

/// Frozen chunks cost only their parameter bytes. With AdamW; SGD uses no moments, but the memory
/// is planned before the first step names the optimizer.
PredictedBytes PredictBytes(std::span<const LayerPlan> layers, int gradient_slots);

}  // namespace zerod
