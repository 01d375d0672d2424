#include "worker/train/parameter_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/error.h"

namespace zerod::train {
namespace {

const std::vector<std::string> kNames = {"embed.weight", "layers.0.weight", "layers.0.bias",
                                         "head.weight"};

/// Names of what is trained.
std::vector<std::string> TrainedBy(const ParameterRules& rules) {
  std::vector<std::string> trained;
  for (const std::string& name : kNames) {
    if (SettingsOf(GroupsOf(rules), name).train) trained.push_back(name);
  }
  return trained;
}

std::string ComplaintAbout(const ParameterRules& rules) {
  try {
    CheckPatterns(rules);
    CheckMatches(rules, kNames);
  } catch (const Error& error) {
    EXPECT_EQ(ExitCode(error.code()), 2);
    return error.what();
  }
  return "accepted";
}

TEST(ParameterRules, TrainEverythingUnlessTold) { EXPECT_EQ(TrainedBy({}), kNames); }

TEST(ParameterRules, TrainNamesWhatIsTrainedAlone) {
  EXPECT_EQ(TrainedBy({.train = {"layers", "head"}}),
            (std::vector<std::string>{"layers.0.weight", "layers.0.bias", "head.weight"}));
}

TEST(ParameterRules, FreezeWinsOverTrain) {
  EXPECT_EQ(TrainedBy({.freeze = {"bias$"}, .train = {"layers"}}),
            std::vector<std::string>{"layers.0.weight"});
  EXPECT_EQ(TrainedBy({.freeze = {"layers", "embed"}}), std::vector<std::string>{"head.weight"});
}

TEST(ParameterRules, DecayAndRatesComposeWithFreezing) {
  const auto groups = GroupsOf({.freeze = {"embed"},
                                .no_decay = {"bias$", "embed"},
                                .rates = {{"layers", 0.5f}, {"bias", 2.0f}}});
  EXPECT_EQ(SettingsOf(groups, "layers.0.bias"),
            (ParameterSettings{.lr_scale = 2.0f, .decay = false, .train = true}));
  EXPECT_EQ(SettingsOf(groups, "layers.0.weight"),
            (ParameterSettings{.lr_scale = 0.5f, .decay = true, .train = true}));
  EXPECT_EQ(SettingsOf(groups, "embed.weight"),
            (ParameterSettings{.lr_scale = 1.0f, .decay = false, .train = false}));
}

TEST(ParameterRules, NameTheOptionOfAPatternThatMatchesNothing) {
  EXPECT_THAT(ComplaintAbout({.freeze = {"embed", "layers.7"}}),
              testing::StartsWith("--freeze 'layers.7' matches none of the model's 4 parameters"));
  EXPECT_THAT(ComplaintAbout({.train = {"x"}}), testing::HasSubstr("--train 'x'"));
  EXPECT_THAT(ComplaintAbout({.no_decay = {"x"}}), testing::HasSubstr("--no-decay 'x'"));
  EXPECT_THAT(ComplaintAbout({.rates = {{"x", 1}}}), testing::HasSubstr("--lr-scale 'x'"));
  EXPECT_EQ(ComplaintAbout({.freeze = {"^embed", "0.*bias"}}), "accepted");
}

}  // namespace
}  // namespace zerod::train
