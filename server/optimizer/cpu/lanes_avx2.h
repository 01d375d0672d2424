#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

/// The vocabulary of vector_kernels.h on AVX2 and FMA: 16 floats in two registers. Included by
/// exactly one source file; the unnamed namespace keeps its code out of the linker's sight.
namespace zerod {
namespace {

struct Lanes {
  __m256 low;
  __m256 high;
};

inline Lanes Load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
inline void Store(float* to, Lanes a) {
  _mm256_storeu_ps(to, a.low);
  _mm256_storeu_ps(to + 8, a.high);
}
inline void Stream(float* to, Lanes a) {
  _mm256_stream_ps(to, a.low);
  _mm256_stream_ps(to + 8, a.high);
}
inline void FenceStreams() { _mm_sfence(); }

inline Lanes Broadcast(float a) { return {_mm256_set1_ps(a), _mm256_set1_ps(a)}; }
inline Lanes Add(Lanes a, Lanes b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline Lanes Multiply(Lanes a, Lanes b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline Lanes Divide(Lanes a, Lanes b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline Lanes SquareRoot(Lanes a) { return {_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)}; }
inline Lanes MultiplyAdd(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

inline __m256i RoundToBf16(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc0), is_nan);
}

/// Rounds to nearest even; every NaN becomes 0x7fc0.
inline void StoreBf16(std::uint16_t* to, Lanes a) {
  // The pack works within 128-bit halves; the permutation puts the quarters back in order.
  const __m256i packed = _mm256_packus_epi32(RoundToBf16(a.low), RoundToBf16(a.high));
  const __m256i ordered = _mm256_permute4x64_epi64(packed, 0b11011000);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), ordered);
}

class SquareSums {
 public:
  void Add(Lanes a) {
    Accumulate(sums_[0], _mm256_castps256_ps128(a.low));
    Accumulate(sums_[1], _mm256_extractf128_ps(a.low, 1));
    Accumulate(sums_[2], _mm256_castps256_ps128(a.high));
    Accumulate(sums_[3], _mm256_extractf128_ps(a.high, 1));
  }
  void Get(double* to) const {
    for (int i = 0; i < 4; ++i) _mm256_storeu_pd(to + 4 * i, sums_[i]);
  }

 private:
  // The square of a float is exact in double, so fusing it changes nothing.
  static void Accumulate(__m256d& sum, __m128 a) {
    const __m256d wide = _mm256_cvtps_pd(a);
    sum = _mm256_fmadd_pd(wide, wide, sum);
  }

  __m256d sums_[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(),
                      _mm256_setzero_pd()};
};

}  // namespace
}  // namespace zerod
