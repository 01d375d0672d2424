#include "client/ctl/ctl_options.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "proto/contract/error.h"

namespace zerod::ctl {
namespace {

using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

CtlOptions Read(const std::vector<std::string>& arguments, const Variables& variables = {}) {
  const auto environment = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  return ReadCtlOptions(arguments, environment, "9.8.7");
}

std::string Refusal(const std::vector<std::string>& arguments, const Variables& variables = {}) {
  try {
    Read(arguments, variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "(accepted)";
}

TEST(CtlOptions, FindTheAddressInFourPlaces) {
  const Variables both = {{"ZEROD_ADDRESS", "host:7"}, {"ZEROD_SOCKET", "/run/z"}};
  EXPECT_EQ(Read({"status", "--address", "unix:/a"}, both).address, "unix:/a");
  EXPECT_EQ(Read({"status"}, both).address, "host:7");
  EXPECT_EQ(Read({"status"}, {{"ZEROD_SOCKET", "/run/z"}}).address, "unix:/run/z");
  EXPECT_EQ(Read({"status"}, {{"XDG_RUNTIME_DIR", "/run/user/7"}}).address,
            "unix:/run/user/7/zerod-" + std::to_string(getuid()) + "/zerod.sock");
}

TEST(CtlOptions, TakeAPathForAUnixSocket) {
  EXPECT_EQ(Read({"--address", "/run/z", "jobs"}).address, "unix:/run/z");
  for (const char* bad : {"host", "host:", ":7", "host:7x", "http://host:7", "unix:"}) {
    EXPECT_THAT(Refusal({"--address", bad, "jobs"}), HasSubstr("unix:PATH or HOST:PORT")) << bad;
  }
}

TEST(CtlOptions, RefuseASocketPathThatIsTooLong) {
  const std::string path = "/" + std::string(107, 'p');
  EXPECT_THAT(Refusal({"--address", "unix:" + path, "jobs"}), HasSubstr("at most 107"));
  EXPECT_THAT(Refusal({"jobs"}, {{"ZEROD_SOCKET", path}}),
              AllOf(HasSubstr("ZEROD_SOCKET"), HasSubstr("108 bytes")));
}

TEST(CtlOptions, KnowEveryCommand) {
  const std::pair<std::vector<std::string>, Command> cases[] = {
      {{"status"}, Command::kStatus},      {{"health"}, Command::kHealth},
      {{"jobs"}, Command::kJobs},          {{"drop", "j"}, Command::kDrop},
      {{"layers"}, Command::kLayers},      {{"layers", "j"}, Command::kLayers},
      {{"shards", "j"}, Command::kShards}, {{"memory"}, Command::kMemory},
      {{"sessions"}, Command::kSessions},  {{"version"}, Command::kVersion},
  };
  for (const auto& [arguments, command] : cases) {
    const CtlOptions options = Read(arguments);
    EXPECT_EQ(options.command, command) << arguments[0];
    EXPECT_EQ(options.job_id, arguments.size() > 1 ? "j" : "");
  }
  EXPECT_TRUE(Read({"shards", "--checksums"}).checksums);
}

TEST(CtlOptions, TakeGeneralOptionsOnBothSidesOfTheCommand) {
  EXPECT_TRUE(Read({"-o", "json", "jobs"}).json);
  EXPECT_TRUE(Read({"jobs", "--output", "json"}).json);
  EXPECT_EQ(Read({"jobs", "--timeout", "250ms"}).timeout.count(), 250);
}

TEST(CtlOptions, RefuseWhatTheyDoNotKnow) {
  EXPECT_THAT(Refusal({}), HasSubstr("--help"));
  EXPECT_THAT(Refusal({"halt"}), HasSubstr("halt"));
  EXPECT_THAT(Refusal({"drop"}), HasSubstr("job"));
  EXPECT_THAT(Refusal({"drop", ""}), HasSubstr("job: an empty text is not allowed"));
  EXPECT_THAT(Refusal({"layers", ""}), HasSubstr("job: an empty text is not allowed"));
  EXPECT_THAT(Refusal({"jobs", "--address", ""}), HasSubstr("--address: an empty text"));
  EXPECT_THAT(Refusal({"jobs", "--timeout", "99999999999999999999"}), HasSubstr("--timeout"));
  EXPECT_THAT(Refusal({"jobs", "-o", "xml"}), HasSubstr("'xml'"));
  EXPECT_THAT(Refusal({"jobs", "--timeout", "soon"}), HasSubstr("'soon'"));
}

TEST(CtlOptions, PrintHelpAndVersion) {
  EXPECT_THAT(Read({"--help"}).text, HasSubstr("sessions"));
  EXPECT_EQ(Read({"--version"}).text, "zeroctl 9.8.7\n");
}

}  // namespace
}  // namespace zerod::ctl
