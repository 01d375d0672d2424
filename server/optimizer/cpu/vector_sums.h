#pragma once

// The sums, to be read like vector_kernels.h.

#include "server/optimizer/cpu/vector_kernels.h"

namespace zerod {
namespace {

inline double Fold(const SquareSums& square_sums) {
  double sums[kWidth];
  square_sums.Get(sums);
  for (std::size_t half = kWidth / 2; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

/// kCount 0 stands for any number of sources; one and two, the common ones, keep their pointers
/// in registers.
template <std::size_t kCount>
Lanes SumAt(const SumSources& s, std::size_t i) {
  Lanes sum = Load(s.arrays[0] + i);
  const std::size_t count = kCount == 0 ? s.count : kCount;
  for (std::size_t k = 1; k < count; ++k) sum = Add(sum, Load(s.arrays[k] + i));
  return sum;
}

inline Lanes SumPartAt(const SumSources& s, std::size_t i) {
  Lanes sum = LoadPart(s.arrays[0] + i, s.numel - i);
  for (std::size_t k = 1; k < s.count; ++k) {
    sum = Add(sum, LoadPart(s.arrays[k] + i, s.numel - i));
  }
  return sum;
}

template <std::size_t kCount, bool kOverwrite, bool kStream>
double SumIntoPass(float* accumulator, const SumSources& s) {
  SquareSums squares;
  std::size_t i = 0;
  for (; i + kWidth <= s.numel; i += kWidth) {
    Lanes sum = SumAt<kCount>(s, i);
    if (!kOverwrite) sum = Add(sum, Load(accumulator + i));
    if (kStream) {
      Stream(accumulator + i, sum);
    } else {
      Store(accumulator + i, sum);
    }
    squares.Add(sum);
  }
  if (i < s.numel) {
    Lanes sum = SumPartAt(s, i);
    if (!kOverwrite) sum = Add(sum, LoadPart(accumulator + i, s.numel - i));
    StorePart(accumulator + i, sum, s.numel - i);
    squares.Add(sum);
  }
  if (kStream) FenceStreams();
  return Fold(squares);
}

template <bool kOverwrite, bool kStream>
double SumIntoAny(float* accumulator, const SumSources& s) {
  if (s.count == 1) return SumIntoPass<1, kOverwrite, kStream>(accumulator, s);
  if (s.count == 2) return SumIntoPass<2, kOverwrite, kStream>(accumulator, s);
  return SumIntoPass<0, kOverwrite, kStream>(accumulator, s);
}

double SumInto(float* accumulator, const SumSources& s, bool overwrite) {
  if (!overwrite) return SumIntoAny<false, false>(accumulator, s);
  // Accumulators are read again at the step, long after they left the cache, so they needn't be
  // read from memory before they are overwritten: 0.32 against 0.38 ns per element.
  if (IsLineAligned(accumulator)) return SumIntoAny<true, true>(accumulator, s);
  return SumIntoAny<true, false>(accumulator, s);
}

// A destination is sent right away: stored past the cache, it would be faster to write but the
// two together slower (0.72 against 0.44 ns per element).
template <std::size_t kCount>
void SumToPass(float* destination, const SumSources& s) {
  std::size_t i = 0;
  for (; i + kWidth <= s.numel; i += kWidth) Store(destination + i, SumAt<kCount>(s, i));
  if (i < s.numel) StorePart(destination + i, SumPartAt(s, i), s.numel - i);
}

void SumTo(float* destination, const SumSources& s) {
  if (s.count == 1) return SumToPass<1>(destination, s);
  if (s.count == 2) return SumToPass<2>(destination, s);
  SumToPass<0>(destination, s);
}

double SumOfSquares(const float* values, std::size_t numel) {
  SquareSums squares;
  std::size_t i = 0;
  for (; i + kWidth <= numel; i += kWidth) squares.Add(Load(values + i));
  if (i < numel) squares.Add(LoadPart(values + i, numel - i));
  return Fold(squares);
}

constexpr KernelTable kTable = {
    .adamw = AdamW,
    .sgd = Sgd,
    .sum_into = SumInto,
    .sum_to = SumTo,
    .sum_of_squares = SumOfSquares,
};

}  // namespace
}  // namespace zerod
