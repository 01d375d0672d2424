#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

/// The vocabulary of vector_kernels.h on AVX-512F: 16 floats at a time. Included by exactly one
/// source file; the unnamed namespace keeps its code out of the linker's sight.
namespace zerod {
namespace {

struct Lanes {
  __m512 value;
};

inline Lanes Load(const float* from) { return {_mm512_loadu_ps(from)}; }
inline void Store(float* to, Lanes a) { _mm512_storeu_ps(to, a.value); }
inline void Stream(float* to, Lanes a) { _mm512_stream_ps(to, a.value); }
inline void FenceStreams() { _mm_sfence(); }

inline Lanes Broadcast(float a) { return {_mm512_set1_ps(a)}; }
inline Lanes Add(Lanes a, Lanes b) { return {_mm512_add_ps(a.value, b.value)}; }
inline Lanes Multiply(Lanes a, Lanes b) { return {_mm512_mul_ps(a.value, b.value)}; }
inline Lanes Divide(Lanes a, Lanes b) { return {_mm512_div_ps(a.value, b.value)}; }
inline Lanes SquareRoot(Lanes a) { return {_mm512_sqrt_ps(a.value)}; }
inline Lanes MultiplyAdd(Lanes a, Lanes b, Lanes c) {
  return {_mm512_fmadd_ps(a.value, b.value, c.value)};
}

/// Rounds to nearest even; every NaN becomes 0x7fc0.
inline void StoreBf16(std::uint16_t* to, Lanes a) {
  const __m512i bits = _mm512_castps_si512(a.value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
  const __mmask16 is_nan = _mm512_cmp_ps_mask(a.value, a.value, _CMP_UNORD_Q);
  const __m512i result = _mm512_mask_mov_epi32(rounded, is_nan, _mm512_set1_epi32(0x7fc0));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(result));
}

class SquareSums {
 public:
  void Add(Lanes a) {
    const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a.value), 1));
    Accumulate(low_, _mm512_cvtps_pd(_mm512_castps512_ps256(a.value)));
    Accumulate(high_, _mm512_cvtps_pd(high));
  }
  void Get(double* to) const {
    _mm512_storeu_pd(to, low_);
    _mm512_storeu_pd(to + 8, high_);
  }

 private:
  // The square of a float is exact in double, so fusing it changes nothing.
  static void Accumulate(__m512d& sum, __m512d a) { sum = _mm512_fmadd_pd(a, a, sum); }

  __m512d low_ = _mm512_setzero_pd();
  __m512d high_ = _mm512_setzero_pd();
};

}  // namespace
}  // namespace zerod
