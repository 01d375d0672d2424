#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/contract/operation.h"
#include "proto/contract/plan.h"

namespace zerod::train {

/// What a rank holds of a model, from the plan. Bytes are per rank; padding included.
struct ModelSize {
  int64_t layers = 0;
  int64_t tensors = 0;
  int64_t parameters = 0;  ///< of the whole model
  int64_t trainable = 0;
  int64_t trainable_tensors = 0;
  int64_t parameter_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t optimizer_bytes = 0;  ///< moments, and masters where parameters have 16 bits
  int64_t slot_bytes = 0;       ///< gradient slots of the largest layer's size
  int64_t window_bytes = 0;     ///< gathered layers in use at a time; whole layers

  int64_t peak_bytes() const {
    return parameter_bytes + gradient_bytes + optimizer_bytes + slot_bytes + window_bytes;
  }
};

/// How a model is run, as far as that decides its size.
struct MeasureOptions {
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  int gradient_slots = 2;
  int64_t prefetch_depth = 1;
  int64_t window_limit_bytes = 0;  ///< the session's; 0: none
  int node_count = 1;              ///< on one node nothing is gathered: it has every shard
};

ModelSize MeasureModel(const std::vector<LayerPlan>& plans, const MeasureOptions& options);

/// Three lines: what there is, what of it is trained, and what it costs each rank.
std::string SummaryText(const ModelSize& size, const Mesh& mesh, int node_count);

/// What a run came to.
struct RunResult {
  int64_t first_step = 0;  ///< steps taken before it
  int64_t last_step = 0;
  int64_t tokens = 0;
  double seconds = 0;                         ///< of training and evaluation
  double loss = 0;                            ///< of the last step
  std::optional<double> eval_loss = {};       ///< of the last evaluation
  std::optional<double> best_eval_loss = {};  ///< lowest of this run
  int64_t best_step = 0;                      ///< after which it was
};

/// One line on the steps, one on the evaluations if there were any.
std::string ResultText(const RunResult& result);

/// "2.345 nats per token, perplexity 10.43"
std::string LossText(double loss);

}  // namespace zerod::train
