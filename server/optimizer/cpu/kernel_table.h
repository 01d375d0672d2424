#pragma once

#include <cstddef>
#include <cstdint>

#include "server/optimizer/adamw_scalars.h"

namespace zerod {

/// Raw pointers of one AdamW pass over `numel` elements.
struct AdamWPointers {
  float* parameter;
  float* exp_avg;
  float* exp_avg_sq;
  const float* gradient;
  std::uint16_t* bf16_parameter;  // may be null
  std::size_t numel;
};

/// Raw pointers of one SGD pass over `numel` elements.
struct SgdPointers {
  float* parameter;
  const float* gradient;
  std::uint16_t* bf16_parameter;  // may be null
  std::size_t numel;
};

struct SgdScalars {
  float gradient_factor;
  float weight_decay;
  float negative_learning_rate;
};

/// `count` arrays of `numel` floats that are added in order.
struct SumSources {
  const float* const* arrays;
  std::size_t count;
  std::size_t numel;
};

/// The kernels of one instruction set as plain functions on pointers. The files that define them
/// are compiled with their own machine flags, so nothing inline from a library may be used there:
/// the linker could pick such a copy for the whole program, and older CPUs would die of it.
struct KernelTable {
  void (*adamw)(const AdamWPointers&, const AdamWScalars&);
  void (*sgd)(const SgdPointers&, const SgdScalars&);
  double (*sum_into)(float* accumulator, const SumSources&, bool overwrite);
  void (*sum_to)(float* destination, const SumSources&);
  double (*sum_of_squares)(const float* values, std::size_t numel);
};

const KernelTable& PortableKernels() noexcept;
const KernelTable& Avx2Kernels() noexcept;
const KernelTable& Avx512Kernels() noexcept;

}  // namespace zerod
