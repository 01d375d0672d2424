#pragma once

#include "server/optimizer/kernels.h"

namespace zerod {

/// What the CPU kernels may use. Each includes the ones before it.
enum class InstructionSet {
  kPortable,  // the compiler's baseline
  kAvx2,      // AVX2 and FMA
  kAvx512,    // AVX-512F
};

/// The best that this CPU and its operating system support.
InstructionSet DetectInstructionSet() noexcept;

/// CPU kernels for an instruction set. The result is constant and lives for ever. Running kernels
/// that DetectInstructionSet() doesn't reach ends the process by SIGILL.
const OptimizerKernels& SelectKernels(InstructionSet instruction_set) noexcept;

}  // namespace zerod
