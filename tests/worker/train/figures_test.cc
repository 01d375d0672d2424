#include "worker/train/figures.h"

#include <gtest/gtest.h>

namespace zerod::train {
namespace {

TEST(Figures, ShortensNumbers) {
  EXPECT_EQ(CompactText(0), "0");
  EXPECT_EQ(CompactText(999), "999");
  EXPECT_EQ(CompactText(1000), "1.0k");
  EXPECT_EQ(CompactText(12345), "12.3k");
  EXPECT_EQ(CompactText(999'949), "999.9k");
  EXPECT_EQ(CompactText(999'951), "1.0M");
  EXPECT_EQ(CompactText(33'611'776), "33.6M");
}

TEST(Figures, GivesBytesAUnit) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(512), "512 B");
  EXPECT_EQ(BytesText(6'606'029), "6.3 MiB");
  EXPECT_EQ(BytesText(int64_t{3} << 29), "1.5 GiB");
}

TEST(Figures, WritesDurationsLikeAClock) {
  EXPECT_EQ(DurationText(0), "0:00");
  EXPECT_EQ(DurationText(5.4), "0:05");
  EXPECT_EQ(DurationText(59.6), "1:00");
  EXPECT_EQ(DurationText(754), "12:34");
  EXPECT_EQ(DurationText(3723), "1:02:03");
}

}  // namespace
}  // namespace zerod::train
