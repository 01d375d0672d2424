#pragma once

#include <cstddef>
#include <cstdint>

/// The vocabulary of vector_kernels.h without intrinsics: 16 floats in an array. Right on any
/// machine; slow where the C library has to emulate fmaf. Included by exactly one source file.
namespace zerod {
namespace {

struct Lanes {
  float value[16];
};

template <typename Function>
inline Lanes ForEachLane(Function function) {
  Lanes result;
  for (int i = 0; i < 16; ++i) result.value[i] = function(i);
  return result;
}

inline Lanes Load(const float* from) {
  return ForEachLane([&](int i) { return from[i]; });
}
inline void Store(float* to, const Lanes& a) {
  for (int i = 0; i < 16; ++i) to[i] = a.value[i];
}
inline void Stream(float* to, const Lanes& a) { Store(to, a); }
inline void FenceStreams() {}

inline Lanes Broadcast(float a) {
  return ForEachLane([&](int) { return a; });
}
inline Lanes Add(const Lanes& a, const Lanes& b) {
  return ForEachLane([&](int i) { return a.value[i] + b.value[i]; });
}
inline Lanes Multiply(const Lanes& a, const Lanes& b) {
  return ForEachLane([&](int i) { return a.value[i] * b.value[i]; });
}
inline Lanes Divide(const Lanes& a, const Lanes& b) {
  return ForEachLane([&](int i) { return a.value[i] / b.value[i]; });
}
inline Lanes SquareRoot(const Lanes& a) {
  return ForEachLane([&](int i) { return __builtin_sqrtf(a.value[i]); });
}
inline Lanes MultiplyAdd(const Lanes& a, const Lanes& b, const Lanes& c) {
  return ForEachLane([&](int i) { return __builtin_fmaf(a.value[i], b.value[i], c.value[i]); });
}

/// Rounds to nearest even; every NaN becomes 0x7fc0.
inline void StoreBf16(std::uint16_t* to, const Lanes& a) {
  for (int i = 0; i < 16; ++i) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, &a.value[i], sizeof bits);
    const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    to[i] = static_cast<std::uint16_t>(a.value[i] != a.value[i] ? 0x7fc0 : rounded);
  }
}

class SquareSums {
 public:
  void Add(const Lanes& a) {
    for (int i = 0; i < 16; ++i) {
      const double wide = a.value[i];
      sums_[i] += wide * wide;  // the square is exact: the same bits as the fused form
    }
  }
  void Get(double* to) const {
    for (int i = 0; i < 16; ++i) to[i] = sums_[i];
  }

 private:
  double sums_[16] = {};
};

}  // namespace
}  // namespace zerod
