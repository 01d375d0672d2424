#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/contract/plan.h"

namespace zerod {

/// Values of a stored type as float32: exact. `from` holds as many little-endian elements as `to`,
/// at any alignment.
void WidenTo(std::span<float> to, DType dtype, std::span<const std::byte> from);

/// Rounds to nearest even; every NaN becomes 0x7fc0, as in the optimizer's kernels.
void RoundToBf16(std::span<std::uint16_t> to, std::span<const float> from);

}  // namespace zerod
