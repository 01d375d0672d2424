#include "server/optimizer/adamw_scalars.h"

#include <cmath>

#include "proto/contract/error.h"

namespace zerod {

AdamWScalars ComputeAdamWScalars(const AdamWArguments& arguments) {
  ZEROD_CHECK(arguments.count >= 1, "AdamW count is ", arguments.count);
  const auto count = static_cast<double>(arguments.count);
  const double correction1 = 1.0 - std::pow(arguments.beta1, count);
  const double correction2 = 1.0 - std::pow(arguments.beta2, count);
  return {
      .gradient_factor = static_cast<float>(arguments.gradient_factor),
      .beta1 = static_cast<float>(arguments.beta1),
      .one_minus_beta1 = static_cast<float>(1.0 - arguments.beta1),
      .beta2 = static_cast<float>(arguments.beta2),
      .one_minus_beta2 = static_cast<float>(1.0 - arguments.beta2),
      .decay_factor = static_cast<float>(1.0 - arguments.learning_rate * arguments.weight_decay),
      .inverse_sqrt_correction2 = static_cast<float>(1.0 / std::sqrt(correction2)),
      .eps = static_cast<float>(arguments.eps),
      .negative_step_size = static_cast<float>(-arguments.learning_rate / correction1),
  };
}

}  // namespace zerod
