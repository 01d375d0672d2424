#include "worker/neox/safetensors.h"

#include <bit>
#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/worker/neox/scratch_file.h"

namespace zerod::neox {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::vector<float> ReadFrom(const std::string& header, const std::string& data, size_t numel) {
  const ScratchFile file(SafetensorsContent(header, data));
  std::vector<float> out(numel);
  Safetensors(file.path()).Read("w", 0, out);
  return out;
}

TEST(Safetensors, ReadsFloat32) {
  EXPECT_THAT(ReadFrom(R"({"__metadata__": {"format": "pt"},
                           "a": {"dtype": "BOOL", "shape": [4], "data_offsets": [12, 16]},
                           "w": {"dtype": "F32", "shape": [3, 1], "data_offsets": [0, 12]}})",
                       Bytes<float>({1.5F, -2, 3e-30F}) + Bytes<uint8_t>({1, 0, 1, 0}), 3),
              ElementsAre(1.5F, -2, 3e-30F));
}

TEST(Safetensors, WidensEveryHalfPrecisionNumberExactly) {
  std::vector<uint16_t> bits(65536);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  const std::vector<float> values =
      ReadFrom(R"({"w": {"dtype": "F16", "shape": [65536], "data_offsets": [0, 131072]}})",
               Bytes(bits), bits.size());
  for (size_t i = 0; i < bits.size(); ++i) {
    const int exponent = static_cast<int>(i >> 10 & 31);
    const auto fraction = static_cast<float>(i & 1023);
    float expected =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) expected = fraction == 0 ? INFINITY : NAN;
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(values[i])) << i;
    } else {
      EXPECT_EQ(values[i], i < 32768 ? expected : -expected) << i;
      EXPECT_EQ(std::signbit(values[i]), i >= 32768) << i;
    }
  }
}

TEST(Safetensors, WidensBfloat16) {
  EXPECT_THAT(ReadFrom(R"({"w": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}})",
                       Bytes<uint16_t>({0x3F80, 0xC020, 0x0001}), 3),
              ElementsAre(1, -2.5F, 0x1p-133F));
}

struct BadHeader {
  const char* name;
  const char* header;
  const char* complaint;
};

class SafetensorsComplaint : public testing::TestWithParam<BadHeader> {};

/// The data has 8 bytes each time.
TEST_P(SafetensorsComplaint, NamesTheFile) {
  const ScratchFile file(SafetensorsContent(GetParam().header, "12345678"));
  EXPECT_THAT(ComplaintOf([&] { const Safetensors opened(file.path()); }),
              AllOf(HasSubstr(file.path()), HasSubstr(GetParam().complaint)));
}

INSTANTIATE_TEST_SUITE_P(
    Headers, SafetensorsComplaint,
    testing::Values(
        BadHeader{"NotJson", "{", "not valid JSON"},
        BadHeader{"NoObject", "[]", "not a JSON object"},
        BadHeader{"Twice", R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                               "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})",
                  "'w' occurs twice"},
        BadHeader{"NoType", R"({"w": {"shape": [2], "data_offsets": [0, 8]}})",
                  "'w' needs exactly"},
        BadHeader{"NoTensor", R"({"w": 3})", "'w' needs exactly"},
        BadHeader{"OtherType", R"({"w": {"dtype": "X9", "shape": [2], "data_offsets": [0, 8]}})",
                  "unknown type 'X9'"},
        BadHeader{"TypeOfType", R"({"w": {"dtype": 1, "shape": [2], "data_offsets": [0, 8]}})",
                  "wrong kind"},
        BadHeader{"Negative", R"({"w": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}})",
                  "isn't made of sizes"},
        BadHeader{"Fraction", R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8.0]}})",
                  "aren't positions"},
        BadHeader{"Overflow", R"({"w": {"dtype": "F32", "data_offsets": [0, 8],
                                        "shape": [4294967296, 4294967296, 2]}})",
                  "overflows"},
        BadHeader{"Short", R"({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}})",
                  "has 8 bytes, but its type and shape need 4"},
        BadHeader{"Backwards", R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}})",
                  "'w' lies at"},
        BadHeader{"Outside", R"({"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}})",
                  "truncated"},
        BadHeader{"Wrapping", R"({"w": {"dtype": "F32", "shape": [2],
                                        "data_offsets": [18446744073709551612, 4]}})",
                  "'w' lies at"},
        BadHeader{"Overlap", R"({"v": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                                 "w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
                  "'w' overlaps"},
        BadHeader{"OverlapBehindAGap",
                  R"({"v": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
                      "w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
                  "'w' overlaps"},
        BadHeader{"ControlCharacters",
                  R"({"a\nb\u001b[2J": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
                  "'a\\x0ab\\x1b[2J' has a gap before its data"},
        BadHeader{"Gap", R"({"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
                  "'w' has a gap"},
        BadHeader{"Rest", R"({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
                  "4 bytes after the last tensor"},
        BadHeader{"HugeSize", R"({"w": {"dtype": "F32", "data_offsets": [0, 8],
                                        "shape": [99999999999999999999999]}})",
                  "isn't made of sizes"},
        BadHeader{"HugeOffset", R"({"w": {"dtype": "F32", "shape": [2],
                                          "data_offsets": [0, 1e300]}})",
                  "aren't positions"},
        BadHeader{"NegativeOffset", R"({"w": {"dtype": "F32", "shape": [2],
                                              "data_offsets": [-8, 0]}})",
                  "aren't positions"},
        BadHeader{"ManyDimensions", R"({"w": {"dtype": "F32", "shape": [1,1,1,1,1,1,1,1,2],
                                              "data_offsets": [0, 8]}})",
                  "wrong kind"},
        BadHeader{"NotUtf8", "{\"\xff\": {\"dtype\": \"F32\"}}", "not valid JSON"},
        BadHeader{"ZeroByteCut", "{\"w\": \"", "not valid JSON"},
        BadHeader{"TwoObjects", "{}{}", "not valid JSON"},
        BadHeader{"Metadata", R"({"__metadata__": {"format": 3}})", "not a map of strings"}),
    [](const auto& bad) { return bad.param.name; });

TEST(Safetensors, RefusesHeaderLengthsThatDontFit) {
  for (const std::string& content :
       {std::string(""), std::string("1234567"), std::string(8, '\xff'),
        std::string("\x09\0\0\0\0\0\0\0{}", 10), std::string("<html>not found</html>")}) {
    const ScratchFile file(content);
    EXPECT_THAT(ComplaintOf([&] { const Safetensors opened(file.path()); }),
                HasSubstr(file.path()));
  }
}

/// Peak of this process's resident memory.
int64_t PeakBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

TEST(Safetensors, RefusesMonstrousHeadersWithLittleMemory) {
  const std::string names(7 << 20, 'a');
  std::string numbers = R"({"w": [0)";
  while (numbers.size() < (7 << 20)) numbers += ",0";
  struct Monster {
    std::string header;
    const char* complaint;
  };
  const std::vector<Monster> monsters = {
      {std::string(7 << 20, '['), "nested too deeply"},
      {R"({"w": )" + std::string(7 << 20, '['), "nested too deeply"},
      {numbers, "too many values"},
      {"{\"" + names + "\": 1}", "a tensor name of 7340032 bytes"},
      {"{\"" + names, "not valid JSON"},
      {"{" + std::string(9 << 20, ' ') + "}", "a header at most 8388608"}};
  for (const Monster& monster : monsters) {
    const ScratchFile file(SafetensorsContent(monster.header, ""));
    const int64_t before = PeakBytes();
    const std::string complaint = ComplaintOf([&] { const Safetensors opened(file.path()); });
    EXPECT_THAT(complaint, HasSubstr(monster.complaint));
    EXPECT_LT(complaint.size(), 500U);
    EXPECT_LT(PeakBytes() - before, 80 << 20) << monster.complaint;
  }
}

TEST(Safetensors, RefusesToReadOtherTypes) {
  EXPECT_THAT(ComplaintOf([] {
                ReadFrom(R"({"w": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}})",
                         "12345678", 1);
              }),
              HasSubstr("'w' has type I64"));
}

TEST(Safetensors, NoticesAFileThatShrinksWhileOpen) {
  const ScratchFile file(SafetensorsContent(
      R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", "12345678"));
  const Safetensors opened(file.path());
  ASSERT_EQ(truncate(file.path().c_str(), 70), 0);
  std::vector<float> out(2);
  EXPECT_THAT(ComplaintOf([&] { opened.Read("w", 0, out); }), HasSubstr("truncated"));
}

}  // namespace
}  // namespace zerod::neox
