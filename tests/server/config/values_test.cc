#include "server/config/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/error.h"

namespace zerod {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <typename Function>
std::string MessageOf(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "(accepted)";
}

TEST(Values, SizesTakeBinaryUnitsAndFractions) {
  const std::pair<const char*, int64_t> cases[] = {
      {"0", 0},           {"4096", 4096},         {"17B", 17},     {"64KiB", 65536},
      {"3 MiB", 3145728}, {"1.5GiB", 1610612736}, {"0.5KiB", 512}, {"2TiB", 2199023255552},
  };
  for (const auto& [text, bytes] : cases) EXPECT_EQ(ReadBytes(text), bytes) << text;
}

TEST(Values, SizesWithOtherUnitsAreRefused) {
  for (const char* text : {"", "KiB", "-1", "1GB", "1 kib", "1.2.3", "1e3", "4194304TiB"}) {
    EXPECT_THAT(MessageOf([&] { ReadBytes(text); }), HasSubstr("64KiB")) << text;
  }
}

TEST(Values, IntegersMustBeWholeAndInRange) {
  EXPECT_EQ(ReadInteger("7", 1, 7), 7);
  EXPECT_EQ(ReadInteger("-1", -1, 7), -1);
  for (const char* text : {"", "0", "8", "1.5", " 2", "2 ", "0x2", "99999999999999999999"}) {
    EXPECT_EQ(MessageOf([&] { ReadInteger(text, 1, 7); }), "a whole number from 1 to 7") << text;
  }
}

TEST(Values, AddressesNeedHostAndPort) {
  for (const char* text : {"localhost:7000", "10.0.0.1:1", "[::1]:65535", "node-3.example:80"}) {
    EXPECT_EQ(ReadAddress(text, 1), text);
  }
  for (const char* text : {"", "host", ":7000", "host:", "host:0", "host:65536", "host:7000x",
                           "::1:7000", "[]:7000", "tcp://host:7000"}) {
    EXPECT_THAT(MessageOf([&] { ReadAddress(text, 1); }), HasSubstr("HOST:PORT")) << text;
  }
  EXPECT_EQ(ReadAddress("127.0.0.1:0", 0), "127.0.0.1:0");
}

TEST(Values, AddressListsNameEachNodeOnce) {
  EXPECT_THAT(ReadAddressList("a:1, b:2"), ElementsAre("a:1", "b:2"));
  EXPECT_THAT(ReadAddressList(""), IsEmpty());
  EXPECT_THAT(MessageOf([] { ReadAddressList("a:1,a:1"); }), HasSubstr("a:1 is in it twice"));
  EXPECT_THAT(MessageOf([] { ReadAddressList("a:1,"); }), HasSubstr("HOST:PORT"));
}

TEST(Values, FolderListsHoldAbsolutePaths) {
  EXPECT_THAT(ReadFolderList("/models, /data/my models"),
              ElementsAre("/models", "/data/my models"));
  EXPECT_THAT(ReadFolderList(""), IsEmpty());
  for (const char* text : {"models", "/models,", "/models,../x", "~/models"}) {
    EXPECT_THAT(MessageOf([&] { ReadFolderList(text); }), HasSubstr("absolute folders")) << text;
  }
}

TEST(Values, BooleansAreSpelledInFourWays) {
  for (const char* text : {"true", "on", "yes", "1"}) EXPECT_TRUE(ReadBool(text)) << text;
  for (const char* text : {"false", "off", "no", "0"}) EXPECT_FALSE(ReadBool(text)) << text;
  EXPECT_EQ(MessageOf([] { ReadBool("maybe"); }), "true or false");
}

}  // namespace
}  // namespace zerod
