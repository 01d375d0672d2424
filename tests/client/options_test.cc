#include "client/options.h"

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zerod {
namespace {

using testing::HasSubstr;

class OptionsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) unsetenv(name);
  }
  void TearDown() override { SetUp(); }

  static constexpr const char* kNames[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "ZEROD_SOCKET",
                                           "ZEROD_JOB"};
};

std::string MessageOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST_F(OptionsTest, ComeFromTheEnvironment) {
  setenv("RANK", "5", 1);
  setenv("WORLD_SIZE", "8", 1);
  setenv("LOCAL_RANK", "1", 1);
  setenv("ZEROD_SOCKET", "/run/z", 1);
  setenv("ZEROD_JOB", "neox", 1);
  const SessionOptions options = SessionOptions::FromEnvironment();
  EXPECT_EQ(options.rank, 5);
  EXPECT_EQ(options.world_size, 8);
  EXPECT_EQ(options.local_rank, 1);
  EXPECT_EQ(options.socket_path, "/run/z");
  EXPECT_EQ(options.job_id, "neox");
}

TEST_F(OptionsTest, WithoutAnEnvironmentMeanOneRank) {
  const SessionOptions options = SessionOptions::FromEnvironment();
  EXPECT_EQ(options.rank, 0);
  EXPECT_EQ(options.world_size, 1);
  EXPECT_EQ(options.job_id, "default");
}

TEST_F(OptionsTest, AVariableThatIsNoNumberIsNamedWithItsValue) {
  for (const char* value : {"", "two", "-1", "1.5", " 1", "1 ", "99999999999"}) {
    setenv("LOCAL_RANK", value, 1);
    const std::string message = MessageOf([] { SessionOptions::FromEnvironment(); });
    EXPECT_THAT(message, HasSubstr("LOCAL_RANK"));
    EXPECT_THAT(message, HasSubstr(Concat('"', value, '"')));
  }
}

SessionOptions Sensible() {
  SessionOptions options;
  options.socket_path = "/run/z";
  return options;
}

TEST_F(OptionsTest, SensibleOnesPass) { EXPECT_NO_THROW(CheckOptions(Sensible())); }

TEST_F(OptionsTest, EachThatCannotWorkIsRefused) {
  using Options = SessionOptions;
  const std::vector<std::pair<const char*, std::function<void(Options&)>>> changes = {
      {"ZEROD_SOCKET", [](Options& o) { o.socket_path = ""; }},
      {"105 bytes", [](Options& o) { o.socket_path.assign(105, 'p'); }},
      {"world size of 0", [](Options& o) { o.world_size = 0; }},
      {"rank 1 in a world of 1", [](Options& o) { o.rank = 1; }},
      {"rank -1", [](Options& o) { o.rank = -1; }},
      {"local rank 1", [](Options& o) { o.local_rank = 1; }},
      {"groups of 2", [](Options& o) { o.tensor_parallel = 2; }},
      {"groups of 0", [](Options& o) { o.tensor_parallel = 0; }},
      {"job id", [](Options& o) { o.job_id = ""; }},
      {"job id", [](Options& o) { o.job_id.assign(121, 'j'); }},
      {"window", [](Options& o) { o.window_bytes = -1; }},
      {"cache", [](Options& o) { o.cache_bytes = -2; }},
      {"slots", [](Options& o) { o.gradient_slots = 0; }},
  };
  for (const auto& [named, change] : changes) {
    SessionOptions options = Sensible();
    change(options);
    EXPECT_THAT(MessageOf([&] { CheckOptions(options); }), HasSubstr(named));
  }
}

}  // namespace
}  // namespace zerod
