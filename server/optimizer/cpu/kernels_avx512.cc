#include "server/optimizer/cpu/lanes_avx512.h"
// The vocabulary above comes first: the kernels are written on it.
#include "server/optimizer/cpu/vector_sums.h"

namespace zerod {

const KernelTable& Avx512Kernels() noexcept { return kTable; }

}  // namespace zerod
