#include "server/optimizer/cpu/lanes_portable.h"
// The vocabulary above comes first: the kernels are written on it.
#include "server/optimizer/cpu/vector_sums.h"

namespace zerod {

const KernelTable& PortableKernels() noexcept { return kTable; }

}  // namespace zerod
