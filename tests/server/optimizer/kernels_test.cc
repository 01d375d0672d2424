#include "server/optimizer/kernels.h"

#include <array>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "server/optimizer/factory.h"
#include "tests/server/optimizer/scalar_reference.h"

namespace zerod::testing {
namespace {

constexpr std::size_t kMaxLength = 70;  // four full groups of 16 lanes and a rest
constexpr std::size_t kMaxOffset = 17;  // past one group and past one cache line
constexpr std::size_t kRoom = kMaxLength + kMaxOffset + 16;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<InstructionSet> AvailableInstructionSets() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet set :
       {InstructionSet::kPortable, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (set <= DetectInstructionSet()) sets.push_back(set);
  }
  return sets;
}

std::vector<std::uint32_t> Bits(std::span<const float> values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

std::span<float> Part(std::vector<float>& values, std::size_t offset, std::size_t numel) {
  return std::span(values).subspan(offset, numel);
}

class KernelsTest : public ::testing::TestWithParam<InstructionSet> {
 protected:
  /// Calls `check(offset, numel)` for every length and for offsets that break any alignment.
  template <typename Check>
  static void ForEveryLengthAndOffset(Check check) {
    for (std::size_t numel = 0; numel <= kMaxLength; ++numel) {
      for (const std::size_t offset : {0, 1, 3, 7, 16, 17}) {
        SCOPED_TRACE("numel " + std::to_string(numel) + " offset " + std::to_string(offset));
        check(offset, numel);
        if (HasFailure()) return;
      }
    }
  }

  const OptimizerKernels& kernels_ = SelectKernels(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Cpu, KernelsTest, ::testing::ValuesIn(AvailableInstructionSets()),
                         [](const auto& info) {
                           return std::string(SelectKernels(info.param).name());
                         });

TEST_P(KernelsTest, AdamWHasTheBitsOfTheScalarReferenceAndTouchesNothingElse) {
  const AdamWArguments arguments{.learning_rate = 3e-3,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .eps = 1e-8,
                                 .weight_decay = 0.1,
                                 .count = 7,
                                 .gradient_factor = 0.37};
  const ScalarAdamW reference(arguments);
  const std::vector<float> gradient = Values(kRoom, 4);
  ForEveryLengthAndOffset([&](std::size_t offset, std::size_t numel) {
    std::vector<float> p = Values(kRoom, 1), m = Values(kRoom, 2), v = Values(kRoom, 3);
    for (float& value : v) value = std::fabs(value);
    std::vector<float> want_p = p, want_m = m, want_v = v;
    for (std::size_t i = offset; i < offset + numel; ++i) {
      reference(want_p[i], want_m[i], want_v[i], gradient[i]);
    }
    kernels_.AdamW({.parameter = Part(p, offset, numel),
                    .exp_avg = Part(m, offset, numel),
                    .exp_avg_sq = Part(v, offset, numel),
                    .gradient = std::span(gradient).subspan(offset, numel)},
                   arguments);
    EXPECT_EQ(Bits(p), Bits(want_p));
    EXPECT_EQ(Bits(m), Bits(want_m));
    EXPECT_EQ(Bits(v), Bits(want_v));
  });
}

TEST_P(KernelsTest, AdamWRoundsTheNewMasterToBf16) {
  const AdamWArguments arguments{.learning_rate = 1e-2, .count = 1};
  const std::vector<float> gradient = Values(kRoom, 4);
  ForEveryLengthAndOffset([&](std::size_t offset, std::size_t numel) {
    std::vector<float> master = Values(kRoom, 1), m(kRoom), v(kRoom);
    std::vector<std::uint16_t> bf16(kRoom, 0x1234);
    kernels_.AdamW({.parameter = Part(master, offset, numel),
                    .exp_avg = Part(m, offset, numel),
                    .exp_avg_sq = Part(v, offset, numel),
                    .gradient = std::span(gradient).subspan(offset, numel),
                    .bf16_parameter = std::span(bf16).subspan(offset, numel)},
                   arguments);
    for (std::size_t i = 0; i < kRoom; ++i) {
      const bool inside = i >= offset && i < offset + numel;
      ASSERT_EQ(bf16[i], inside ? ScalarBf16(master[i]) : 0x1234) << "element " << i;
    }
  });
}

TEST_P(KernelsTest, Bf16RoundsTiesToEvenAndKeepsNanAndInfinity) {
  // With learning rate 0 the master stays as it is, and only the rounding is left.
  const std::array<std::pair<float, std::uint16_t>, 6> cases = {{
      {std::bit_cast<float>(0x3f808000u), 0x3f80},  // a tie below an even neighbour
      {std::bit_cast<float>(0x3f818000u), 0x3f82},  // a tie above an odd one
      {std::bit_cast<float>(0x3f808001u), 0x3f81},  // just above a tie
      {std::numeric_limits<float>::max(), 0x7f80},
      {-kInfinity, 0xff80},
      {kNan, 0x7fc0},
  }};
  for (const auto& [value, want] : cases) {
    std::vector<float> master(16, value), m(16), v(16), gradient(16);
    std::vector<std::uint16_t> bf16(16);
    kernels_.AdamW({master, m, v, gradient, bf16}, {.learning_rate = 0.0});
    for (const std::uint16_t got : bf16) EXPECT_EQ(got, want) << value;
  }
}

TEST_P(KernelsTest, SgdHasTheBitsOfTheScalarReference) {
  const std::vector<float> gradient = Values(kRoom, 2);
  for (const double decay : {0.0, 0.01}) {
    const SgdArguments arguments{
        .learning_rate = 0.05, .weight_decay = decay, .gradient_factor = 0.125};
    ForEveryLengthAndOffset([&](std::size_t offset, std::size_t numel) {
      std::vector<float> p = Values(kRoom, 1);
      std::vector<float> want = p;
      std::vector<std::uint16_t> bf16(kRoom, 0x1234);
      for (std::size_t i = offset; i < offset + numel; ++i) {
        want[i] = ScalarSgd(want[i], gradient[i], arguments);
      }
      const std::span gradients = std::span(gradient).subspan(offset, numel);
      kernels_.Sgd({Part(p, offset, numel), gradients}, arguments);
      EXPECT_EQ(Bits(p), Bits(want));
      std::vector<float> master = Values(kRoom, 1);
      kernels_.Sgd({Part(master, offset, numel), gradients, std::span(bf16).subspan(offset, numel)},
                   arguments);
      EXPECT_EQ(Bits(master), Bits(want));
      for (std::size_t i = 0; i < kRoom; ++i) {
        const bool inside = i >= offset && i < offset + numel;
        ASSERT_EQ(bf16[i], inside ? ScalarBf16(want[i]) : 0x1234) << "element " << i;
      }
    });
  }
}

TEST_P(KernelsTest, SumIntoAddsSourcesInOrderThenTheAccumulator) {
  const std::vector<float> s0 = Values(kRoom, 1), s1 = Values(kRoom, 2), s2 = Values(kRoom, 3);
  for (const std::size_t count : {1, 2, 3}) {
    ForEveryLengthAndOffset([&](std::size_t offset, std::size_t numel) {
      for (const bool overwrite : {false, true}) {
        std::vector<float> accumulator = Values(kRoom, 9);
        std::vector<float> want = accumulator;
        for (std::size_t i = offset; i < offset + numel; ++i) {
          float sum = s0[i];
          if (count > 1) sum += s1[i];
          if (count > 2) sum += s2[i];
          want[i] = overwrite ? sum : sum + want[i];
        }
        const std::array<const float*, 3> sources = {s0.data() + offset, s1.data() + offset,
                                                     s2.data() + offset};
        const double squares = kernels_.SumInto(Part(accumulator, offset, numel),
                                                std::span(sources).first(count), overwrite);
        EXPECT_EQ(Bits(accumulator), Bits(want));
        EXPECT_EQ(squares, ScalarSumOfSquares(Part(want, offset, numel)));
        EXPECT_EQ(squares, kernels_.SumOfSquares(Part(want, offset, numel)));
      }
    });
  }
}

TEST_P(KernelsTest, SumToAddsSourcesInOrder) {
  const std::vector<float> s0 = Values(kRoom, 1), s1 = Values(kRoom, 2), s2 = Values(kRoom, 3);
  for (const std::size_t count : {1, 2, 3}) {
    ForEveryLengthAndOffset([&](std::size_t offset, std::size_t numel) {
      std::vector<float> destination(kRoom, -7.0f);
      std::vector<float> want = destination;
      for (std::size_t i = 0; i < numel; ++i) {
        want[offset + i] = s0[i];
        if (count > 1) want[offset + i] += s1[i];
        if (count > 2) want[offset + i] += s2[i];
      }
      const std::array<const float*, 3> sources = {s0.data(), s1.data(), s2.data()};
      kernels_.SumTo(Part(destination, offset, numel), std::span(sources).first(count));
      EXPECT_EQ(Bits(destination), Bits(want));
    });
  }
}

TEST_P(KernelsTest, SumsOfSmallIntegersAreExactAndSoAreTheirSquares) {
  // Source k holds k + (i mod 8); four sources and an accumulator of 2 give 8 + 4 r with
  // r = i mod 8, whose square is 16 (2 + r)^2; (2 + r)^2 adds up to 284 over r = 0..7.
  constexpr std::size_t kNumel = 65536;
  std::vector<std::vector<float>> arrays(4, std::vector<float>(kNumel));
  std::vector<const float*> sources;
  for (std::size_t k = 0; k < 4; ++k) {
    for (std::size_t i = 0; i < kNumel; ++i) arrays[k][i] = static_cast<float>(k + i % 8);
    sources.push_back(arrays[k].data());
  }
  std::vector<float> accumulator(kNumel, 2.0f);
  const double squares = kernels_.SumInto(accumulator, sources, false);
  for (std::size_t i = 0; i < kNumel; ++i) {
    ASSERT_EQ(accumulator[i], static_cast<float>(8 + 4 * (i % 8))) << "element " << i;
  }
  EXPECT_EQ(squares, 16.0 * 284.0 * 0.125 * kNumel);
}

TEST_P(KernelsTest, OverwritingIgnoresWhatTheAccumulatorHeld) {
  alignas(64) std::array<float, 40> accumulator;
  accumulator.fill(kNan);
  const std::vector<float> source(40, 3.0f);
  const std::array<const float*, 1> sources = {source.data()};
  EXPECT_EQ(kernels_.SumInto(accumulator, sources, true), 9.0 * 40);
  for (const float value : accumulator) EXPECT_EQ(value, 3.0f);
}

TEST_P(KernelsTest, NanInfinityAndOverflowReachTheSumOfSquares) {
  for (const std::size_t at : {0, 15, 16, 38}) {
    for (const bool overwrite : {false, true}) {
      std::vector<float> accumulator(39, 1.0f), source(39, 1.0f);
      const std::array<const float*, 1> sources = {source.data()};
      source[at] = kNan;
      EXPECT_TRUE(std::isnan(kernels_.SumInto(accumulator, sources, overwrite))) << at;
      accumulator.assign(39, 1.0f);
      source[at] = -kInfinity;
      EXPECT_EQ(kernels_.SumInto(accumulator, sources, overwrite), kInfinity) << at;
    }
    std::vector<float> accumulator(39, std::numeric_limits<float>::max());
    const std::vector<float> source(39, std::numeric_limits<float>::max());
    const std::array<const float*, 1> sources = {source.data()};
    EXPECT_EQ(kernels_.SumInto(accumulator, sources, false), kInfinity);
  }
}

TEST_P(KernelsTest, LargeFiniteValuesHaveAFiniteSumOfSquares) {
  const std::vector<float> values(1000, 1e30f);
  const double square = static_cast<double>(1e30f) * static_cast<double>(1e30f);
  EXPECT_DOUBLE_EQ(kernels_.SumOfSquares(values), 1000 * square);
}

TEST_P(KernelsTest, FourAdamStepsGiveTheNumbersComputedByHand) {
  std::vector<float> p = {1.0f}, m = {0.0f}, v = {0.0f};
  std::int64_t count = 0;
  for (const float g : {1.0f, 1.0f, -0.5f, -0.5f}) {
    const std::vector<float> gradient = {g};
    kernels_.AdamW({p, m, v, gradient},
                   {.learning_rate = 0.1, .beta1 = 0.9, .beta2 = 0.999, .count = ++count});
  }
  EXPECT_NEAR(p[0], 0.726764, 1e-6);
}

TEST_P(KernelsTest, TheGradientFactorActsLikeScaledGradients) {
  const std::vector<float> gradient = Values(kRoom, 4);
  std::vector<float> scaled = gradient;
  for (float& value : scaled) value *= 0.25f;
  std::vector<float> p1 = Values(kRoom, 1), m1(kRoom), v1(kRoom);
  std::vector<float> p2 = p1, m2 = m1, v2 = v1;
  kernels_.AdamW({p1, m1, v1, gradient}, {.learning_rate = 0.1, .gradient_factor = 0.25});
  kernels_.AdamW({p2, m2, v2, scaled}, {.learning_rate = 0.1, .gradient_factor = 1.0});
  EXPECT_EQ(Bits(p1), Bits(p2));
  EXPECT_EQ(Bits(v1), Bits(v2));
}

TEST_P(KernelsTest, AZeroGradientOnlyDecays) {
  std::vector<float> p = Values(kRoom, 1), m(kRoom), v(kRoom);
  std::vector<float> want = p;
  for (float& value : want) value *= 1.0f - 0.5f * 0.25f;
  const std::vector<float> gradient(kRoom, 0.0f);
  kernels_.AdamW({p, m, v, gradient}, {.learning_rate = 0.5, .weight_decay = 0.25});
  EXPECT_EQ(Bits(p), Bits(want));
}

TEST(KernelsDeathTest, SpansOfDifferentLengthsAreABug) {
  const OptimizerKernels& kernels = SelectKernels(InstructionSet::kPortable);
  std::vector<float> four(4), five(5);
  EXPECT_DEATH(kernels.AdamW({four, four, five, four}, {}), "exp_avg_sq 5");
  EXPECT_DEATH(kernels.Sgd({four, five}, {}), "gradient 5");
  EXPECT_DEATH(kernels.SumTo(four, {}), "nothing to sum");
}

}  // namespace
}  // namespace zerod::testing
