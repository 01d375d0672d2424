#include "client/ctl/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/error.h"

namespace zerod::ctl {
namespace {

TEST(Units, BytesHaveThreeDigitsAndABinaryUnit) {
  const std::pair<int64_t, const char*> cases[] = {
      {0, "0 B"},
      {1023, "1023 B"},
      {1024, "1.00 KiB"},
      {1536, "1.50 KiB"},
      {12'900'000, "12.3 MiB"},
      {(int64_t{1} << 30) - 1, "1.00 GiB"},
      {int64_t{300} << 30, "300 GiB"},
      {int64_t{5} << 50, "5120 TiB"},
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(HumanBytes(bytes), text);
}

TEST(Units, CountsUsePowersOfAThousand) {
  const std::pair<int64_t, const char*> cases[] = {
      {0, "0"},
      {999, "999"},
      {1000, "1.00 K"},
      {33'600'000, "33.6 M"},
      {999'999, "1.00 M"},
      {20'554'567'680, "20.6 G"},
      {160'000'000'000, "160 G"},
  };
  for (const auto& [count, text] : cases) EXPECT_EQ(HumanCount(count), text);
}

TEST(Units, SecondsShowTheTwoLargestUnits) {
  EXPECT_EQ(HumanSeconds(59), "59 s");
  EXPECT_EQ(HumanSeconds(200), "3 min 20 s");
  EXPECT_EQ(HumanSeconds(7500), "2 h 5 min");
  EXPECT_EQ(HumanSeconds(3 * 86400 + 4 * 3600 + 59), "3 d 4 h");
}

TEST(Units, HexHasSixteenDigits) {
  EXPECT_EQ(Hex(0xbeef), "000000000000beef");
  EXPECT_EQ(Hex(~uint64_t{0}), "ffffffffffffffff");
}

TEST(Units, TimeoutsTakeMillisecondsSecondsAndMinutes) {
  EXPECT_EQ(ReadTimeout("500ms").count(), 500);
  EXPECT_EQ(ReadTimeout("5s").count(), 5000);
  EXPECT_EQ(ReadTimeout("0.25").count(), 250);
  EXPECT_EQ(ReadTimeout("2m").count(), 120'000);
  for (const char* text : {"", "s", "0s", "-1s", "5h", "61m", "5 s", "nan"}) {
    EXPECT_THROW(ReadTimeout(text), Error) << text;
  }
}

}  // namespace
}  // namespace zerod::ctl
