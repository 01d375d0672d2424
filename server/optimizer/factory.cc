#include "server/optimizer/factory.h"

#include "server/optimizer/cpu/cpu_kernels.h"

namespace zerod {

InstructionSet DetectInstructionSet() noexcept {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return InstructionSet::kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return InstructionSet::kAvx2;
  return InstructionSet::kPortable;
}

const OptimizerKernels& SelectKernels(InstructionSet instruction_set) noexcept {
  static const CpuKernels portable("portable", PortableKernels());
  static const CpuKernels avx2("avx2", Avx2Kernels());
  static const CpuKernels avx512("avx512", Avx512Kernels());
  switch (instruction_set) {
    case InstructionSet::kPortable:
      return portable;
    case InstructionSet::kAvx2:
      return avx2;
    case InstructionSet::kAvx512:
      return avx512;
  }
  return portable;
}

}  // namespace zerod
