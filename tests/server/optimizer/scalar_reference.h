#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/optimizer/kernels.h"

namespace zerod::testing {

/// The element functions of OptimizerKernels, one element at a time and written independently of
/// the vector code.
struct ScalarAdamW {
  explicit ScalarAdamW(const AdamWArguments& a) : arguments(a) {}

  void operator()(float& parameter, float& exp_avg, float& exp_avg_sq, float raw_gradient) const {
    const AdamWArguments& a = arguments;
    const double correction1 = 1.0 - std::pow(a.beta1, static_cast<double>(a.count));
    const double correction2 = 1.0 - std::pow(a.beta2, static_cast<double>(a.count));
    const float gradient = raw_gradient * Rounded(a.gradient_factor);
    exp_avg = std::fma(gradient, Rounded(1.0 - a.beta1), exp_avg * Rounded(a.beta1));
    exp_avg_sq =
        std::fma(gradient * gradient, Rounded(1.0 - a.beta2), exp_avg_sq * Rounded(a.beta2));
    const float denominator =
        std::fma(std::sqrt(exp_avg_sq), Rounded(1.0 / std::sqrt(correction2)), Rounded(a.eps));
    parameter = std::fma(exp_avg / denominator, Rounded(-a.learning_rate / correction1),
                         parameter * Rounded(1.0 - a.learning_rate * a.weight_decay));
  }

  static float Rounded(double value) { return static_cast<float>(value); }

  AdamWArguments arguments;
};

inline float ScalarSgd(float parameter, float raw_gradient, const SgdArguments& a) {
  float gradient = raw_gradient * static_cast<float>(a.gradient_factor);
  if (a.weight_decay != 0.0) {
    gradient = std::fma(parameter, static_cast<float>(a.weight_decay), gradient);
  }
  return std::fma(gradient, static_cast<float>(-a.learning_rate), parameter);
}

/// Sum of squares in the order that OptimizerKernels::SumInto promises.
inline double ScalarSumOfSquares(std::span<const float> values) {
  double partial[16] = {};
  for (std::size_t i = 0; i < values.size(); ++i) {
    partial[i % 16] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  for (int half = 8; half >= 1; half /= 2) {
    for (int j = 0; j < half; ++j) partial[j] += partial[j + half];
  }
  return partial[0];
}

/// Rounded to nearest, ties to even, by trying both neighbours.
inline std::uint16_t ScalarBf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t below = bits & 0xffff0000u;
  const std::uint32_t rest = bits - below;
  const bool up = rest > 0x8000u || (rest == 0x8000u && (bits & 0x10000u) != 0);
  return static_cast<std::uint16_t>((below >> 16) + (up ? 1 : 0));
}

/// Reproducible values of mixed sign and about ten binary orders of magnitude.
inline float Value(std::size_t i, unsigned stream) {
  const std::uint32_t hash = (static_cast<std::uint32_t>(i) * 2654435761u) ^ (stream * 40503u);
  const float mantissa = static_cast<float>((hash >> 8) & 0xffffu) / 65536.0f + 0.25f;
  const float sign = (hash & 1u) != 0 ? -1.0f : 1.0f;
  return sign * std::ldexp(mantissa, static_cast<int>((hash >> 24) % 10) - 8);
}

inline std::vector<float> Values(std::size_t numel, unsigned stream) {
  std::vector<float> values(numel);
  for (std::size_t i = 0; i < numel; ++i) values[i] = Value(i, stream);
  return values;
}

}  // namespace zerod::testing
