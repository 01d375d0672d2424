#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/contract/operation.h"
#include "proto/contract/plan.h"

namespace zerod::train {

/// What a rank holds of a model, from the plan. Bytes are per rank; padding included.
struct ModelSize {
  int64_t layers = 0;
  int64_t parameters = 0;  ///< of the whole model
  int64_t trainable = 0;
  int64_t parameter_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t moment_bytes = 0;
  int64_t slot_bytes = 0;  ///< gradient slots of the largest layer's size
};

ModelSize MeasureModel(const std::vector<LayerPlan>& plans, OptimizerKind optimizer,
                       int gradient_slots);

/// Two lines.
std::string SummaryText(const ModelSize& size, const Mesh& mesh, int node_count);

}  // namespace zerod::train
