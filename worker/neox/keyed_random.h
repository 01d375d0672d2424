#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace zerod::neox {

/// Philox 4x32 with 10 rounds: four independent random words for a counter and a key.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, uint64_t key);

/// A random stream without state: the value at an index depends on (seed, name, index) alone. So
/// any part of a tensor can be drawn by anyone, in any order, and is the same everywhere. Philox
/// 4x32 with 10 rounds; the seed is the key, name and index are the counter. A plain value.
class KeyedRandom {
 public:
  KeyedRandom(uint64_t seed, std::string_view name);

  /// out[i] = element first_index + i of the stream of normal values with the given mean and
  /// standard deviation. Values beyond 6.8 standard deviations don't occur.
  void FillNormal(uint64_t first_index, double mean, double deviation, std::span<float> out) const;

 private:
  uint64_t seed_;
  uint64_t name_hash_;
};

}  // namespace zerod::neox
