#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace zerod {

/// Hyper-parameters of one AdamW update of one tensor. They are doubles on purpose: 1 - 0.999f is
/// off by 5e-5, which is what the second moment would be scaled with.
struct AdamWArguments {
  double learning_rate = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.0;
  /// Updates of this tensor including this one: the first has count 1.
  std::int64_t count = 1;
  /// Every gradient is multiplied by it first: clip factor / gradient divisor.
  double gradient_factor = 1.0;
};

/// What one AdamW pass reads and writes; all spans have the same length and don't overlap.
struct AdamWTensors {
  std::span<float> parameter;       // read and written; the fp32 master where the parameter is bf16
  std::span<float> exp_avg;         // read and written
  std::span<float> exp_avg_sq;      // read and written
  std::span<const float> gradient;  // summed, not yet divided or clipped
  std::span<std::uint16_t> bf16_parameter = {};  // written if not empty: bf16 of the new master
};

/// What one SGD pass reads and writes, as in AdamWTensors.
struct SgdTensors {
  std::span<float> parameter;
  std::span<const float> gradient;
  std::span<std::uint16_t> bf16_parameter = {};
};

/// Hyper-parameters of one SGD update without momentum.
struct SgdArguments {
  double learning_rate = 0.0;
  double weight_decay = 0.0;
  double gradient_factor = 1.0;  // as in AdamWArguments
};

/// The elementwise passes of the daemon. Spans may have any length and any alignment; 64-byte
/// aligned ones are faster. Every implementation for the CPU gives the same bits.
///
/// Threads: stateless, callable from any thread; a call returns when its stores are visible to a
/// thread that synchronises with the caller (non-temporal stores are fenced inside).
/// Failure: spans that don't fit together are a bug and abort.
class OptimizerKernels {
 public:
  virtual ~OptimizerKernels() = default;

  /// Which code runs, e.g. "avx512". For logs.
  virtual const char* name() const noexcept = 0;

  /// One step of AdamW with decoupled weight decay, in float32 with these roundings per element:
  ///   g = gradient * gradient_factor
  ///   m = fma(g, 1 - beta1, beta1 * m)
  ///   v = fma(g * g, 1 - beta2, beta2 * v)
  ///   p = fma(m / fma(sqrt(v), 1 / sqrt(1 - beta2^count), eps), -lr / (1 - beta1^count),
  ///           p * (1 - lr * weight_decay))
  /// The scalars are computed in double and rounded once.
  virtual void AdamW(const AdamWTensors& tensors, const AdamWArguments& arguments) const = 0;

  /// One step of SGD: g = gradient * gradient_factor; with weight decay g = fma(p, decay, g);
  /// p = fma(g, -lr, p). Bit-equal with LibTorch's where the factor is a power of two.
  virtual void Sgd(const SgdTensors& tensors, const SgdArguments& arguments) const = 0;

  /// accumulator = ((s0 + s1) + …) + accumulator in float32, without the last term if `overwrite`
  /// (the accumulator is not read then and may hold anything). Every source points to
  /// accumulator.size() floats outside the accumulator; at least one is needed.
  ///
  /// Returns the sum of squares of the result in float64, the order of which depends on the length
  /// alone: element i goes to partial sum i mod 16, and the 16 are folded in halves (j + 8, j + 4,
  /// j + 2, j + 1). NaN and infinity come through. The sum over a shard is the sum over its blocks
  /// in order, so callers that want equal bits cut alike.
  virtual double SumInto(std::span<float> accumulator, std::span<const float* const> sources,
                         bool overwrite) const = 0;

  /// destination = (s0 + s1) + … in float32. Rules as for SumInto.
  virtual void SumTo(std::span<float> destination, std::span<const float* const> sources) const = 0;

  /// Sum of squares as returned by SumInto, nothing written.
  virtual double SumOfSquares(std::span<const float> values) const = 0;
};

}  // namespace zerod
