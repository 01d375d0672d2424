#include <set>

#include <gtest/gtest.h>

#include "server/collective/communicator.h"

namespace zerod {
namespace {

TEST(SegmentTagTest, TagsThatDifferInOneFieldHaveDifferentValues) {
  std::set<uint64_t> values;
  int tags = 0;
  for (uint64_t ticket : {0ull, 1ull, 0xFFFF'FFFFull}) {
    for (uint16_t layer : {0, 1, 4095}) {
      for (uint8_t chunk : {0, 1, 3}) {
        for (uint8_t kind : {0, 1, 15}) {
          for (uint16_t rank : {0, 1, 4095}) {
            values.insert(SegmentTag{ticket, layer, chunk, kind, rank}.Value());
            ++tags;
          }
        }
      }
    }
  }
  EXPECT_EQ(values.size(), static_cast<size_t>(tags));
}

TEST(SegmentTagTest, TheTwoTopBitsStayFree) {
  EXPECT_EQ((SegmentTag{0xFFFF'FFFF, 4095, 3, 15, 4095}.Value()), (uint64_t{1} << 62) - 1);
}

TEST(SegmentTagDeathTest, AFieldOutOfRangeAborts) {
  EXPECT_DEATH((SegmentTag{uint64_t{1} << 32, 0, 0, 0, 0}.Value()), "ticket is 4294967296");
  EXPECT_DEATH((SegmentTag{0, 4096, 0, 0, 0}.Value()), "layer is 4096");
  EXPECT_DEATH((SegmentTag{0, 0, 4, 0, 0}.Value()), "chunk is 4");
  EXPECT_DEATH((SegmentTag{0, 0, 0, 16, 0}.Value()), "kind is 16");
  EXPECT_DEATH((SegmentTag{0, 0, 0, 0, 4096}.Value()), "rank is 4096");
}

}  // namespace
}  // namespace zerod
