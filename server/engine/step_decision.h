#pragma once

#include <span>
#include <vector>

#include "proto/contract/operation.h"

namespace zerod {

/// What a step does, the same on every node.
struct StepDecision {
  bool apply = true;           ///< false: the norm isn't finite, all ranks skip alike
  double grad_norm = 0;        ///< of the summed gradient after division, before clipping
  double factor = 1;           ///< divisor and clip factor, folded into the optimizer pass
  std::vector<double> values;  ///< Operation::values summed over ranks, in rank order
};

/// `sum_squares` by rank, over that rank's shards of the summed gradient; `values` rank-major. All
/// sums run in float64 and in rank order, so that every node decides alike. Clipping follows
/// torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)).
StepDecision DecideStep(const StepArguments& arguments, std::span<const double> sum_squares,
                        std::span<const double> values);

/// Sums rank-major `values` of `ranks` ranks column by column, in rank order.
std::vector<double> SumOverRanks(std::span<const double> values, size_t ranks);

}  // namespace zerod
