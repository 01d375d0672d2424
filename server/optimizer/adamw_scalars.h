#pragma once

#include "server/optimizer/kernels.h"

namespace zerod {

/// AdamWArguments as the element function uses them: computed in double, rounded once, so that
/// every implementation starts from the same floats.
struct AdamWScalars {
  float gradient_factor;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float decay_factor;              // 1 - learning_rate * weight_decay
  float inverse_sqrt_correction2;  // 1 / sqrt(1 - beta2^count)
  float eps;
  float negative_step_size;  // -learning_rate / (1 - beta1^count)
};

/// `count` below 1 is a bug and aborts.
AdamWScalars ComputeAdamWScalars(const AdamWArguments& arguments);

}  // namespace zerod
