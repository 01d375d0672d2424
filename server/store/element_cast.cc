#include "server/store/element_cast.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "proto/contract/error.h"

namespace zerod {
namespace {

static_assert(std::endian::native == std::endian::little, "stored elements are little-endian");

float WidenBf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

float WidenFp16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1f;
  const std::uint32_t fraction = bits & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

template <typename Widen>
void WidenEach(std::span<float> to, const std::byte* from, Widen widen) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, from + i * sizeof(bits), sizeof(bits));
    to[i] = widen(bits);
  }
}

}  // namespace

void WidenTo(std::span<float> to, DType dtype, std::span<const std::byte> from) {
  ZEROD_CHECK(from.size() == to.size() * SizeOf(dtype), from.size(), " bytes for ", to.size(),
              " elements");
  switch (dtype) {
    case DType::kFloat32:
      std::memcpy(to.data(), from.data(), from.size());
      return;
    case DType::kBFloat16:
      WidenEach(to, from.data(), WidenBf16);
      return;
    case DType::kFloat16:
      WidenEach(to, from.data(), WidenFp16);
      return;
  }
  ZEROD_CHECK(false, "element type ", static_cast<int>(dtype));
}

void RoundToBf16(std::span<std::uint16_t> to, std::span<const float> from) {
  ZEROD_CHECK(to.size() == from.size(), to.size(), " and ", from.size(), " elements");
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(from[i]);
    const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    to[i] = static_cast<std::uint16_t>(from[i] != from[i] ? 0x7fc0 : rounded);
  }
}

}  // namespace zerod
