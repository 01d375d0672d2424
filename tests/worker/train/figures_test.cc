#include "worker/train/figures.h"

#include <gtest/gtest.h>

#include "worker/train/printable_text.h"

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

TEST(PrintableText, KeepsTextAndUtf8) {
  const std::string text = "The licence,\tversion 2\n\"Größe\" \xE2\x82\xAC \xF0\x9F\x90\x8B";
  EXPECT_EQ(PrintableText(text), text);
}

TEST(PrintableText, ShowsWhatATerminalCouldTakeAmissAsCodes) {
  EXPECT_EQ(PrintableText("a\x1b[2Jb\x07\r\x7f"), "a\\x1b[2Jb\\x07\\x0d\\x7f");
  EXPECT_EQ(PrintableText(std::string("\0", 1)), "\\x00");
}

TEST(PrintableText, ShowsBrokenUtf8AsCodes) {
  EXPECT_EQ(PrintableText("\x80"), "\\x80");                    // continuation without a start
  EXPECT_EQ(PrintableText("\xE2\x82"), "\\xe2\\x82");           // ends too early
  EXPECT_EQ(PrintableText("\xC3(\xA9"), "\\xc3(\\xa9");         // interrupted
  EXPECT_EQ(PrintableText("\xC0\xAF"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(PrintableText("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // surrogate
  EXPECT_EQ(PrintableText("\xC2\x9B"), "\\xc2\\x9b");           // C1 control
}

}  // namespace
}  // namespace zerod::train
