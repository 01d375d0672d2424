#include "server/engine/step_decision.h"

#include <algorithm>
#include <cmath>

#include "proto/contract/error.h"

namespace zerod {

std::vector<double> SumOverRanks(std::span<const double> values, size_t ranks) {
  ZEROD_CHECK(ranks > 0 && values.size() % ranks == 0, values.size(), " values of ", ranks);
  const size_t count = values.size() / ranks;
  std::vector<double> sums(count);
  for (size_t i = 0; i < values.size(); ++i) sums[i % count] += values[i];
  return sums;
}

StepDecision DecideStep(const StepArguments& arguments, std::span<const double> sum_squares,
                        std::span<const double> values) {
  StepDecision decision;
  double total = 0;
  for (double part : sum_squares) total += part;
  decision.grad_norm = std::sqrt(total) / std::abs(arguments.gradient_divisor);
  decision.factor = 1.0 / arguments.gradient_divisor;
  if (arguments.max_grad_norm > 0) {
    decision.factor *= std::min(1.0, arguments.max_grad_norm / (decision.grad_norm + 1e-6));
  }
  // A tiny divisor makes the factor infinite although the norm is 0.
  decision.apply = std::isfinite(decision.grad_norm) && std::isfinite(decision.factor);
  decision.values = SumOverRanks(values, sum_squares.size());
  return decision;
}

}  // namespace zerod
