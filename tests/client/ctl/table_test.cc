#include "client/ctl/table.h"

#include <gtest/gtest.h>

namespace zerod::ctl {
namespace {

TEST(Table, AlignsColumnsAndLeavesNoSpaceAtLineEnds) {
  Table table({{"NAME"}, {"COUNT", Table::Align::kRight}, {"NOTE"}});
  table.AddRow({"embed", "7", ""});
  table.AddRow({"h", "12345678", "slow"});
  EXPECT_EQ(table.Render(),
            "NAME      COUNT  NOTE\n"
            "embed         7\n"
            "h      12345678  slow\n");
}

TEST(Table, WithoutRowsIsItsHeading) { EXPECT_EQ(Table({{"A"}, {"B"}}).Render(), "A  B\n"); }

TEST(Table, CountsCharactersInsteadOfBytes) {
  Table table({{"N"}, {"X"}});
  table.AddRow({"\xc3\xa4\xc3\xb6", "1"});
  EXPECT_EQ(table.Render(), "N   X\n\xc3\xa4\xc3\xb6  1\n");
}

TEST(Table, ShowsNoControlCharacters) {
  Table table({{"N"}});
  table.AddRow({"a\x1b[31m\nb"});
  EXPECT_EQ(table.Render(), "N\na?[31m?b\n");
}

}  // namespace
}  // namespace zerod::ctl
