#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "worker/neox/config.h"

namespace zerod::neox {

// Shapes here: B samples, T positions, H heads, D elements per head, P rotated pairs.

/// Cosine and sine of the rotary angles, [T, P] float32 each, computed once and shared by all
/// blocks of a model. Grows to the longest sequence seen. For a model in bfloat16 they are rounded
/// to it, as in the published implementation. One thread at a time.
class RotaryTable {
 public:
  explicit RotaryTable(const Config& config, DType dtype = DType::kFloat32);

  struct Angles {
    at::Tensor cosine;
    at::Tensor sine;
  };

  /// The rows of `positions` positions from `first` on, contiguous.
  Angles Range(int64_t first, int64_t positions);

 private:
  int64_t pairs_;
  int64_t ndims_;
  double base_;
  DType dtype_;
  Angles angles_;
};

struct Heads {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
};

/// Splits the fused projection [B, T, H·3·D] (query, key and value of head 0, then of head 1, ...)
/// into three [B, H, T, D] and rotates queries and keys: element i of a head goes with element i +
/// P for i < P. `fused` is float32 or bfloat16; bfloat16 is rounded after each product and each
/// sum. Differentiable once. Takes `fused` over: the results lie in its memory and it must not be
/// used again, so it must be contiguous and not needed by a backward (the result of a linear layer
/// is neither).
Heads SplitAndRotate(const at::Tensor& fused, int64_t heads, const RotaryTable::Angles& angles);

}  // namespace zerod::neox
