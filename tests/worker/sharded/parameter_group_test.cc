#include "worker/sharded/parameter_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/error.h"

namespace zerod {
namespace {

TEST(ParameterGroups, LeaveAParameterThatNoneMatchesAtTheDefaults) {
  EXPECT_EQ(SettingsOf({}, "weight"), ParameterSettings());
  EXPECT_EQ(SettingsOf({{.pattern = "bias", .train = false}}, "weight"), ParameterSettings());
}

TEST(ParameterGroups, MatchAPartOfAName) {
  const std::vector<ParameterGroup> groups = {{.pattern = "layers\\.1\\.", .train = false}};
  EXPECT_FALSE(SettingsOf(groups, "gpt_neox.layers.1.mlp.weight").train);
  EXPECT_TRUE(SettingsOf(groups, "gpt_neox.layers.11.mlp.weight").train);
}

TEST(ParameterGroups, AreJoinedFieldByFieldAndTheLastCounts) {
  const std::vector<ParameterGroup> groups = {
      {.pattern = "second", .lr_scale = 0.5f, .train = false},
      {.pattern = "bias$", .lr_scale = 2.0f, .decay = false},
      {.pattern = "^second\\.weight$", .train = true}};
  EXPECT_EQ(SettingsOf(groups, "second.bias"),
            (ParameterSettings{.lr_scale = 2.0f, .decay = false, .train = false}));
  EXPECT_EQ(SettingsOf(groups, "second.weight"),
            (ParameterSettings{.lr_scale = 0.5f, .decay = true, .train = true}));
  EXPECT_EQ(SettingsOf(groups, "first.bias"),
            (ParameterSettings{.lr_scale = 2.0f, .decay = false, .train = true}));
}

TEST(ParameterGroups, NameAPatternThatIsNoRegularExpression) {
  try {
    SettingsOf({{.pattern = "layers.(1"}}, "weight");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), testing::HasSubstr("'layers.(1' isn't a regular expression"));
  }
}

TEST(ParameterGroups, MatchInTimeThatGrowsSlowlyWithTheName) {
  const std::string name(60, 'a');  // 2^60 ways to divide it among the repetitions
  EXPECT_FALSE(PatternMatches("^(a+)+!$", name));
  EXPECT_TRUE(PatternMatches("^(a+)+!$", name + "!"));
}

TEST(ParameterGroups, RefuseAPatternTooLongForTheStack) {
  EXPECT_FALSE(PatternMatches(std::string(4096, '.'), "weight"));
  try {
    PatternMatches(std::string(100'000, '.'), "weight");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), testing::HasSubstr("100000 characters; at most 4096"));
  }
}

}  // namespace
}  // namespace zerod
