#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "worker/neox/config.h"

namespace zerod::neox {

// Shapes here: B samples, T positions, H heads, D elements per head, P rotated pairs.

/// Cosine and sine of the rotary angles, [T, P] float32 each, computed once and shared by all
/// blocks of a model. Grows to the longest sequence seen. One thread at a time.
class RotaryTable {
 public:
  explicit RotaryTable(const Config& config);

  struct Angles {
    at::Tensor cosine;
    at::Tensor sine;
  };

  /// The first `positions` rows, contiguous.
  Angles First(int64_t positions);

 private:
  int64_t pairs_;
  int64_t ndims_;
  double base_;
  Angles angles_;
};

struct Heads {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
};

/// Splits the fused projection [B, T, H·3·D] (query, key and value of head 0, then of head 1, ...)
/// into three [B, H, T, D] and rotates queries and keys: element i of a head goes with element i +
/// P for i < P. Differentiable once. Takes `fused` over: the results lie in its memory and it must
/// not be used again, so it must be contiguous and not needed by a backward (the result of a linear
/// layer is neither).
Heads SplitAndRotate(const at::Tensor& fused, int64_t heads, const RotaryTable::Angles& angles);

}  // namespace zerod::neox
