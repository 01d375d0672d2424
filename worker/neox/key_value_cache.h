#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/neox/config.h"

namespace zerod::neox {

/// Keys (rotated) and values of the positions of one sequence that went through the blocks of a
/// model, so that the next token costs the forward of one position. Takes, when full,
/// 2 · num_hidden_layers · capacity · hidden_size elements. One thread.
class KeyValueCache {
 public:
  /// Room for `capacity` positions, at least 1.
  KeyValueCache(const Config& config, int64_t capacity);

  struct Past {
    at::Tensor key;
    at::Tensor value;
  };

  /// Takes `key` and `value` [1, heads, T, head size] of positions length() to length() + T - 1 of
  /// a block and returns those of all positions from 0 on, [1, heads, length() + T, head size], as
  /// views of its memory. The sequence must fit.
  Past Append(int64_t block, const at::Tensor& key, const at::Tensor& value);

  /// All blocks have taken `positions` more.
  void Advance(int64_t positions);

  /// Begins another sequence.
  void Clear() { length_ = 0; }

  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }

 private:
  std::vector<Past> blocks_;  // [1, heads, capacity, head size]; undefined before the first use
  int64_t capacity_;
  int64_t length_ = 0;
};

}  // namespace zerod::neox
