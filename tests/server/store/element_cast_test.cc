#include "server/store/element_cast.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace zerod {
namespace {

constexpr uint32_t kPatterns = 1 << 16;

/// All 16-bit patterns, widened.
std::vector<float> WidenAll(DType dtype) {
  std::vector<uint16_t> patterns(kPatterns);
  for (uint32_t bits = 0; bits < kPatterns; ++bits) patterns[bits] = static_cast<uint16_t>(bits);
  std::vector<float> values(kPatterns);
  WidenTo(values, dtype, std::as_bytes(std::span(patterns)));
  return values;
}

/// The value of a pattern by the definition of the format.
double ValueOf(uint32_t bits, int exponent_bits, int fraction_bits) {
  const double sign = (bits >> 15) != 0 ? -1 : 1;
  const int exponent_max = (1 << exponent_bits) - 1;
  const int exponent = static_cast<int>(bits >> fraction_bits) & exponent_max;
  const double fraction = std::ldexp(bits & ((1u << fraction_bits) - 1), -fraction_bits);
  const int bias = exponent_max / 2;
  if (exponent == exponent_max) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1 + fraction, exponent - bias);
}

TEST(ElementCast, EveryFloat16AndBfloat16IsWidenedExactly) {
  const std::vector<float> fp16 = WidenAll(DType::kFloat16);
  const std::vector<float> bf16 = WidenAll(DType::kBFloat16);
  for (uint32_t bits = 0; bits < kPatterns; ++bits) {
    for (const auto& [got, want] : {std::pair<double, double>{fp16[bits], ValueOf(bits, 5, 10)},
                                    std::pair<double, double>{bf16[bits], ValueOf(bits, 8, 7)}}) {
      ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : got == want) << "pattern " << bits;
      ASSERT_TRUE(std::isnan(want) || std::signbit(got) == std::signbit(want)) << bits;
    }
  }
}

TEST(ElementCast, Float32IsCopiedFromAnyAlignment) {
  const std::vector<float> values = {1.5f, -0.0f, 3e38f};
  std::vector<std::byte> bytes(1 + values.size() * sizeof(float));
  std::memcpy(bytes.data() + 1, values.data(), bytes.size() - 1);
  std::vector<float> widened(values.size());
  WidenTo(widened, DType::kFloat32, std::span(bytes).subspan(1));
  EXPECT_EQ(widened, values);
}

uint16_t Rounded(float value) {
  uint16_t bits = 0;
  RoundToBf16({&bits, 1}, {&value, 1});
  return bits;
}

TEST(ElementCast, RoundingGivesEveryBfloat16Back) {
  const std::vector<float> values = WidenAll(DType::kBFloat16);
  for (uint32_t bits = 0; bits < kPatterns; ++bits) {
    ASSERT_EQ(Rounded(values[bits]), std::isnan(values[bits]) ? 0x7fc0 : bits);
  }
}

TEST(ElementCast, RoundingIsToTheNearestAndToEvenInTheMiddle) {
  for (uint32_t bits : {0x3f80u, 0x3f81u, 0x0001u, 0x7f7eu, 0x8000u, 0xc0ffu}) {
    const uint32_t middle = bits << 16 | 0x8000;
    EXPECT_EQ(Rounded(std::bit_cast<float>(middle - 1)), bits);
    EXPECT_EQ(Rounded(std::bit_cast<float>(middle)), bits + bits % 2);
    EXPECT_EQ(Rounded(std::bit_cast<float>(middle + 1)), bits + 1);
  }
}

}  // namespace
}  // namespace zerod
