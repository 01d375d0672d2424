#include "server/config/command_line.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "proto/contract/error.h"

namespace zerod {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Variables = std::map<std::string, std::string>;

/// A configuration file in a folder of its own that goes away with it.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) {
    std::string pattern = std::filesystem::temp_directory_path() / "zerod-config-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    std::ofstream(path()) << content;
  }
  ~TemporaryFile() { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/zerod.toml"; }
  std::string folder() const { return folder_; }

 private:
  std::string folder_;
};

StartRequest Read(const std::vector<std::string>& arguments, const Variables& variables = {}) {
  const auto environment = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  return ReadCommandLine(arguments, environment, "9.8.7");
}

std::string Refusal(const std::vector<std::string>& arguments, const Variables& variables = {}) {
  try {
    Read(arguments, variables);
  } catch (const Error& error) {
    EXPECT_EQ(ExitCode(error.code()), 2);
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    return error.what();
  }
  return "(accepted)";
}

TEST(CommandLine, WithoutAnyOptionDescribesOneNodeWithOneRank) {
  const ServerOptions options = Read({}, {{"XDG_RUNTIME_DIR", "/run/user/7"}}).options;
  EXPECT_EQ(options.engine.node_count, 1);
  EXPECT_EQ(options.engine.ranks, 1);
  EXPECT_EQ(options.listen, "127.0.0.1:0");
  EXPECT_EQ(options.socket_path, "/run/user/7/zerod-" + std::to_string(getuid()) + "/zerod.sock");
  EXPECT_EQ(options.engine.late_warning.count(), 5000);
  EXPECT_EQ(options.engine.late_deadline.count(), 120000);
}

TEST(CommandLine, BeatsEnvironmentBeatsFileBeatsDefault) {
  const TemporaryFile file("ranks = 4  # of this node\n");
  const Variables variable = {{"ZEROD_RANKS", "3"}};
  EXPECT_EQ(Read({}).options.engine.ranks, 1);
  EXPECT_EQ(Read({"--config", file.path()}).options.engine.ranks, 4);
  EXPECT_EQ(Read({"--config", file.path()}, variable).options.engine.ranks, 3);
  EXPECT_EQ(Read({"--config", file.path(), "--ranks", "2"}, variable).options.engine.ranks, 2);
}

TEST(CommandLine, FindsTheFileThroughTheEnvironmentToo) {
  const TemporaryFile file("late-deadline-ms = 7000\n");
  EXPECT_EQ(Read({}, {{"ZEROD_CONFIG", file.path()}}).options.engine.late_deadline.count(), 7000);
}

TEST(CommandLine, TreatsAnEmptyVariableAsNotSet) {
  EXPECT_EQ(Read({}, {{"ZEROD_RANKS", ""}}).options.engine.ranks, 1);
}

TEST(CommandLine, ReadsEveryKindOfValueFromTheFile) {
  const TemporaryFile file(
      "node = 1\npeers = [\"a:7000\", \"b:7000\"]\nsocket = \"/run/z.sock\"\n"
      "cache-bytes = \"64MiB\"\nhuge-pages = false\nlog-level = \"debug\"\n");
  const ServerOptions options = Read({"--config", file.path()}).options;
  EXPECT_EQ(options.engine.node, 1);
  EXPECT_THAT(options.peers, ElementsAre("a:7000", "b:7000"));
  EXPECT_EQ(options.engine.node_count, 2);
  EXPECT_EQ(options.listen, "b:7000");  // its own entry
  EXPECT_EQ(options.socket_path, "/run/z.sock");
  EXPECT_EQ(options.engine.cache_bytes, 64 << 20);
  EXPECT_FALSE(options.engine.huge_pages);
  EXPECT_EQ(options.log_level, "debug");
}

TEST(CommandLine, RefusesUnknownKeysNamingFileAndKey) {
  for (const char* key : {"rank", "socket.path", "late_warning_ms"}) {
    const TemporaryFile file(std::string(key) + " = 2\n");
    EXPECT_THAT(Refusal({"--config", file.path()}),
                AllOf(HasSubstr("'" + std::string(key) + "'"), HasSubstr(file.path())));
  }
  const TemporaryFile section("[engine]\nranks = 2\n");
  EXPECT_THAT(Refusal({"--config", section.path()}), HasSubstr("'engine.ranks'"));
  const TemporaryFile twice("ranks = 2\nnode = 0\nranks = 3\n");
  EXPECT_THAT(Refusal({"--config", twice.path()}), HasSubstr("'ranks' is twice"));
}

TEST(CommandLine, RefusesAQuoteThatIsNotClosed) {
  const TemporaryFile file("socket = \"/run/z.sock\n");
  EXPECT_THAT(Refusal({"--config", file.path()}),
              AllOf(HasSubstr("'socket'"), HasSubstr(file.path()), HasSubstr("quote")));
}

TEST(CommandLine, RefusesAFileItCannotRead) {
  const TemporaryFile file("");
  EXPECT_THAT(Refusal({"--config", file.path() + ".missing"}),
              AllOf(HasSubstr("zerod.toml.missing"), HasSubstr("No such file")));
  EXPECT_THAT(Refusal({"--config", file.folder()}), HasSubstr("is a folder"));
}

struct BadValue {
  std::vector<std::string> arguments;
  Variables variables;
  std::vector<std::string> parts;  // of the message
};

TEST(CommandLine, NamesOptionValueSourceAndWhatIsAllowed) {
  const std::vector<BadValue> cases = {
      {{"--ranks", "0"}, {}, {"--ranks", "'0'", "command line", "from 1 to 1024"}},
      {{}, {{"ZEROD_RANKS", "two"}}, {"--ranks", "'two'", "environment ZEROD_RANKS"}},
      {{"--peers", "a:1,b"}, {}, {"--peers", "'a:1,b'", "HOST:PORT"}},
      {{"--listen", "7000"}, {}, {"--listen", "'7000'", "HOST:PORT"}},
      {{"--node", "1"}, {}, {"--node", "'1'", "--peers names 1 node"}},
      {{"--node", "2", "--peers", "a:1,b:1"}, {}, {"--node", "'2'", "below 2"}},
      {{"--late-warning-ms", "9", "--late-deadline-ms", "8"}, {}, {"--late-deadline-ms (8)"}},
      {{"--log-level", "loud"}, {}, {"--log-level", "'loud'", "trace, debug, info"}},
      {{"--cache-bytes", "1GB"}, {}, {"--cache-bytes", "'1GB'", "1.5GiB"}},
      {{"--socket", std::string(108, 's')}, {}, {"--socket", "this one has 108"}},
      {{"--rank", "1"}, {}, {"--rank", "--help"}},
      {{"serve"}, {}, {"serve"}},
  };
  for (const BadValue& bad : cases) {
    const std::string message = Refusal(bad.arguments, bad.variables);
    for (const std::string& part : bad.parts) EXPECT_THAT(message, HasSubstr(part));
  }
}

TEST(CommandLine, RefusesModelRootsThatAreNoFolders) {
  const TemporaryFile file("");
  EXPECT_EQ(Read({"--model-root", file.folder() + ",/"}).options.engine.model_roots.size(), 2u);
  EXPECT_THAT(Refusal({"--check-config", "--model-root", "/," + file.folder() + "/none"}),
              AllOf(HasSubstr("--model-root"), HasSubstr("command line"),
                    HasSubstr(file.folder() + "/none isn't a folder"),
                    HasSubstr("No such file or directory")));
  EXPECT_THAT(Refusal({}, {{"ZEROD_MODEL_ROOT", file.path()}}),
              AllOf(HasSubstr("environment ZEROD_MODEL_ROOT"), HasSubstr("Not a directory")));
}

TEST(CommandLine, PrintsEachValueWithItsSource) {
  const TemporaryFile file("cache-bytes = \"1MiB\"\n");
  const StartRequest request =
      Read({"--config", file.path(), "--node=0", "--print-config"}, {{"ZEROD_RANKS", "2"}});
  EXPECT_EQ(request.mode, StartMode::kPrintAndExit);
  EXPECT_THAT(request.text, AllOf(HasSubstr("node = 0  # command line\n"),
                                  HasSubstr("ranks = 2  # environment ZEROD_RANKS\n"),
                                  HasSubstr("cache-bytes = \"1MiB\"  # file " + file.path() + "\n"),
                                  HasSubstr("log-level = \"info\"  # default\n")));
}

TEST(CommandLine, AcceptsAsAFileWhatItPrints) {
  const StartRequest printed = Read({"--print-config", "--ranks", "5", "--peers", "a:1,b:2"});
  const TemporaryFile file(printed.text);
  const ServerOptions options = Read({"--config", file.path()}).options;
  EXPECT_EQ(options.engine.ranks, 5);
  EXPECT_THAT(options.peers, ElementsAre("a:1", "b:2"));
}

TEST(CommandLine, ChecksWithoutServing) {
  EXPECT_EQ(Read({"--check-config"}).mode, StartMode::kPrintAndExit);
  EXPECT_THAT(Refusal({"--check-config", "--ranks", "-1"}), HasSubstr("--ranks"));
  EXPECT_EQ(Read({"--version"}).text, "zerod 9.8.7\n");
  EXPECT_THAT(Read({"--help"}).text, HasSubstr("--late-warning-ms"));
}

#ifdef ZEROD_FAILPOINTS
TEST(CommandLine, ReadsFailpointsOneByOne) {
  const ServerOptions options =
      Read({"--failpoints",
            "gather_delay_ms=50,update_delay_ms=200, update_delay_layer=3,update_delay_rank=1,"
            "poison_fresh_memory=1"})
          .options;
  EXPECT_EQ(options.engine.failpoints.gather_delay.count(), 50);
  EXPECT_EQ(options.engine.failpoints.update_delay.count(), 200);
  EXPECT_EQ(options.engine.failpoints.update_delay_layer, 3);
  EXPECT_EQ(options.engine.failpoints.update_delay_rank, 1);
  EXPECT_TRUE(options.engine.failpoints.poison_fresh_memory);
  EXPECT_THAT(Refusal({"--failpoints", "gather_delay=1"}), HasSubstr("'gather_delay'"));
  EXPECT_THAT(Refusal({"--failpoints", "gather_delay_ms"}), HasSubstr("has no ="));
}
#else
TEST(CommandLine, HasNoFailpointsInThisBuild) {
  EXPECT_THAT(Refusal({"--failpoints", "gather_delay_ms=50"}), HasSubstr("--failpoints"));
}
#endif

}  // namespace
}  // namespace zerod
