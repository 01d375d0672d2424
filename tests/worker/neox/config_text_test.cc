#include "worker/neox/config_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/worker/neox/scratch_file.h"

namespace zerod::neox {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(ConfigText, StaysAsItIsIfNothingChanges) {
  const std::string text = R"({ "torch_dtype":"float16","x": 1e-05,
    "architectures": ["GPTNeoXForCausalLM"] })";
  EXPECT_EQ(ConfigText(text, "c", std::nullopt), text);
  EXPECT_EQ(ConfigText(text, "c", DType::kFloat16), text);
}

TEST(ConfigText, NamesTheTypeUnderTheKeysThatAreThere) {
  const std::string classes = R"("architectures": ["A"])";
  EXPECT_EQ(
      json::parse(ConfigText("{" + classes + R"(, "dtype": "float32"})", "c", DType::kBFloat16)),
      json({{"architectures", {"A"}}, {"dtype", "bfloat16"}}));
  EXPECT_EQ(json::parse(ConfigText("{" + classes + R"(, "dtype": null, "torch_dtype": "float32"})",
                                   "c", DType::kFloat16)),
            json({{"architectures", {"A"}}, {"dtype", "float16"}, {"torch_dtype", "float16"}}));
  EXPECT_EQ(json::parse(ConfigText("{" + classes + "}", "c", DType::kFloat32)),
            json({{"architectures", {"A"}}, {"torch_dtype", "float32"}}));
}

TEST(ConfigText, NamesTheClassThatLoadsTheModel) {
  EXPECT_EQ(json::parse(ConfigText("{}", "c", std::nullopt)),
            json({{"architectures", {"GPTNeoXForCausalLM"}}}));
}

TEST(ConfigText, KeepsTheOrderOfKeys) {
  const std::string text = ConfigText(R"({"z": 1, "a": 2})", "c", std::nullopt);
  EXPECT_LT(text.find("\"z\""), text.find("\"a\""));
}

TEST(ConfigText, NamesATextThatIsNoConfig) {
  EXPECT_THAT(ComplaintOf([] { ConfigText("[1]", "dir/config.json", std::nullopt); }),
              HasSubstr("dir/config.json"));
}

}  // namespace
}  // namespace zerod::neox
