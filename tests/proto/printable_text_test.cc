#include "proto/contract/printable_text.h"

#include <gtest/gtest.h>

#include "proto/contract/error.h"

namespace zerod {
namespace {

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

TEST(OneLineText, ShowsLineEndsAndTabsAsCodesToo) {
  EXPECT_EQ(OneLineText("a\nb\tc\x1b\xE2\x82\xAC"), "a\\x0ab\\x09c\\x1b\xE2\x82\xAC");
}

TEST(ErrorTest, SaysEverythingInOneLine) {
  EXPECT_STREQ(Error(ErrorCode::kDataLoss, "tensor 'a\nb\x07' \xFF").what(),
               "tensor 'a\\x0ab\\x07' \\xff");
}

}  // namespace
}  // namespace zerod
