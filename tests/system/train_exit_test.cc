// zerod-train and its daemons as a person starts them: what is wrong is named, and the exit code
// says of which kind it is.

#include <algorithm>
#include <fstream>

#include <gmock/gmock.h>
#include <signal.h>

#include "tests/support/daemons.h"

namespace zerod {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr seconds kTimeout{60};

constexpr const char* kConfig = R"({"model_type": "gpt_neox", "vocab_size": 256, "hidden_size": 16,
  "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
  "max_position_embeddings": 64, "hidden_act": "gelu", "rotary_pct": 0.25,
  "use_parallel_residual": true})";

void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

/// What a run of zerod-train is given beside the defaults below.
struct Fault {
  friend void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

  const char* name;
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;
  int exit_code;
  std::vector<const char*> messages;
};

class TrainExitTest : public testing::TestWithParam<Fault> {
 protected:
  TrainExitTest() {
    std::filesystem::create_directory(folder_.File("model"));
    WriteFile(folder_.File("model/config.json"), kConfig);
    WriteFile(folder_.File("text"), std::string(5000, 'a'));
    std::filesystem::create_directory(folder_.File("broken"));
    WriteFile(folder_.File("broken/config.json"), "{\"model_type\": ");
    std::filesystem::create_directory(folder_.File("heavy"));
    WriteFile(folder_.File("heavy/config.json"), kConfig);
    WriteFile(folder_.File("heavy/model.safetensors"), std::string(200, '\xff'));
    WriteFile(folder_.File("tokens"), std::string(4000, '\x02'));  // 0x0202 = 514
    WriteFile(folder_.File("few"), std::string(4000, '\0'));
    WriteFile(folder_.File("empty"), "");
  }

  ChildOptions Options(const Daemons& daemons, int rank, std::vector<std::string> arguments) {
    const SessionOptions session = daemons.OptionsOf(rank);
    for (std::string& argument : arguments) {
      const size_t at = argument.find("FOLDER");
      if (at != std::string::npos) argument.replace(at, 6, folder_.path().string());
    }
    ChildOptions options;
    options.arguments = {ZEROD_PROGRAM_ZEROD_TRAIN};
    options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
    options.environment = {{"RANK", std::to_string(rank)},
                           {"WORLD_SIZE", std::to_string(session.world_size)},
                           {"LOCAL_RANK", std::to_string(session.local_rank)},
                           {"ZEROD_SOCKET", session.socket_path}};
    options.output_path = folder_.File(Concat("out", rank));
    options.error_path = folder_.File(Concat("err", rank));
    return options;
  }

  std::vector<std::string> Endless() const {
    return {"--model", "FOLDER/model", "--text",  "FOLDER/text", "--batch", "2",
            "--seq",   "16",           "--steps", "100000000",   "--log",   "FOLDER/log"};
  }

  bool AwaitSteps() const {
    return WaitUntil(kTimeout, [&] { return ReadWholeFile(folder_.File("log")).size() > 500; });
  }

  ScratchFolder folder_;
};

TEST_P(TrainExitTest, IsNamedInOneLineWithItsExitCode) {
  const Daemons daemons({1});
  std::vector<std::string> arguments = {"--seq", "16", "--steps", "2"};
  const auto& given = GetParam().arguments;
  const auto without = [&](const char* option) {
    return std::find(given.begin(), given.end(), option) == given.end();
  };
  if (without("--model")) arguments.insert(arguments.end(), {"--model", "FOLDER/model"});
  if (without("--batch")) arguments.insert(arguments.end(), {"--batch", "2"});
  if (without("--text") && without("--tokens")) {
    arguments.insert(arguments.end(), {"--text", "FOLDER/text"});
  }
  arguments.insert(arguments.end(), given.begin(), given.end());
  ChildOptions options = Options(daemons, 0, arguments);
  for (const auto& [name, value] : GetParam().environment) options.environment[name] = value;
  const ChildResult result = RunChild(options, kTimeout);
  EXPECT_EQ(result.exit_code, GetParam().exit_code) << result.error;
  for (const char* message : GetParam().messages) EXPECT_THAT(result.error, HasSubstr(message));
  EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1) << result.error;
  // The daemon serves the next.
  EXPECT_EQ(RunChild(Options(daemons, 0,
                             {"--model", "FOLDER/model", "--text", "FOLDER/text", "--batch", "2",
                              "--seq", "16", "--steps", "1", "--drop"}),
                     kTimeout)
                .exit_code,
            0);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, TrainExitTest,
    testing::Values(
        Fault{"NoConfig", {"--model", "FOLDER"}, {}, 5, {"config.json"}},
        Fault{"BrokenConfig", {"--model", "FOLDER/broken"}, {}, 5, {"broken/config.json"}},
        Fault{"BrokenWeights", {"--model", "FOLDER/heavy"}, {}, 5, {"heavy/model.safetensors"}},
        Fault{"NoText", {"--text", "FOLDER/nothing"}, {}, 5, {"/nothing"}},
        Fault{"EmptyText", {"--text", "FOLDER/empty"}, {}, 5, {"/empty"}},
        Fault{"TokenOutsideTheVocabulary", {"--tokens", "FOLDER/tokens"}, {}, 5, {"514", "256"}},
        Fault{"OnlyDocumentEnds",
              {"--mask-documents", "--document-end", "97"},
              {},
              5,
              {"/text", "every token for training"}},
        Fault{"ExportIntoTheModel", {"--export", "FOLDER/model/."}, {}, 2, {"--export", "--model"}},
        Fault{"ExportIntoAFile", {"--export", "FOLDER/text"}, {}, 2, {"--export", "/text"}},
        Fault{"NoVocabulary",
              {"--tokens", "FOLDER/few", "--token-bytes", "2", "--vocabulary", "FOLDER/none"},
              {},
              5,
              {"/none"}},
        Fault{"HugeNumber", {"--batch", "99999999999999999999"}, {}, 2, {"--batch", "from 1 to"}},
        Fault{"HugeBatch", {"--batch", "2000000000"}, {}, 2, {"logits", "this machine has"}},
        Fault{"UnknownOption", {"--stepz", "3"}, {}, 2, {"--stepz"}},
        Fault{"BatchThatDoesNotDivide", {"--micro-batches", "4"}, {}, 2, {"4", "2"}},
        Fault{"SmallWindow", {"--window-bytes", "5000"}, {}, 2, {"5000"}},
        Fault{"LogThatCannotBeWritten", {"--log", "FOLDER/no/log"}, {}, 2, {"/no/log"}},
        Fault{"OtherWorldSize", {"--batch", "3"}, {{"WORLD_SIZE", "3"}}, 2, {"WORLD_SIZE is 3"}},
        Fault{"RankThatIsNoNumber", {}, {{"RANK", "one"}}, 2, {"RANK", "one"}},
        Fault{"NoDaemon", {}, {{"ZEROD_SOCKET", "/nowhere/z"}}, 3, {"/nowhere/z"}},
        Fault{"LongSocketPath",
              {},
              {{"ZEROD_SOCKET", "/" + std::string(150, 'x')}},
              2,
              {"151 bytes"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(TrainExitTest, AStepInWhichNoTokenCountsHasNoFigure) {
  const Daemons daemons({1});
  WriteFile(folder_.File("text"), std::string(17, 'E') + std::string(47, 'x'));
  const ChildResult result = RunChild(
      Options(daemons, 0,
              {"--model", "FOLDER/model", "--text", "FOLDER/text", "--batch", "1", "--seq", "16",
               "--steps", "2", "--mask-documents", "--document-end", "69", "--log", "FOLDER/log"}),
      kTimeout);
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.output, HasSubstr("step 1 has no loss and a gradient of zero"));
  EXPECT_THAT(ReadWholeFile(folder_.File("log")),
              AllOf(HasSubstr("{\"step\":1,\"loss\":null,\"grad_norm\":0.0,"),
                    HasSubstr("{\"step\":2,\"loss\":5.")));
}

TEST(ProgramExitTest, WhatCannotBePrintedIsAnError) {
  const ScratchFolder folder;
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{ZEROD_PROGRAM_ZEROD, "--print-config"},
        {ZEROD_PROGRAM_ZEROCTL, "--help"},
        {ZEROD_PROGRAM_ZEROD_TRAIN, "--help"}}) {
    ChildOptions options;
    options.arguments = arguments;
    options.output_path = "/dev/full";
    options.error_path = folder.File("err");
    EXPECT_EQ(ChildProcess(options).Wait(kTimeout), 1) << arguments[0];
    EXPECT_THAT(ReadWholeFile(options.error_path),
                HasSubstr("can't write to standard output: No space left on device"));
  }
}

TEST_F(TrainExitTest, ASignalToOneRankEndsAllAfterTheSameStep) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const Daemons daemons({2});
    ChildProcess first(Options(daemons, 0, Endless()));
    ChildProcess second(Options(daemons, 1, Endless()));
    ASSERT_TRUE(AwaitSteps());
    first.Signal(signal);
    EXPECT_EQ(first.Wait(kTimeout), 128 + signal);
    EXPECT_EQ(second.Wait(kTimeout), 128 + signal) << ReadWholeFile(folder_.File("err1"));
    std::filesystem::remove(folder_.File("log"));
  }
}

TEST_F(TrainExitTest, AKilledRankIsAPeerLostToTheOther) {
  const Daemons daemons({2});
  ChildProcess first(Options(daemons, 0, Endless()));
  ChildProcess second(Options(daemons, 1, Endless()));
  ASSERT_TRUE(AwaitSteps());
  first.Signal(SIGKILL);
  EXPECT_EQ(second.Wait(kTimeout), 4);
  EXPECT_THAT(ReadWholeFile(folder_.File("err1")), HasSubstr("rank 0"));
}

TEST_F(TrainExitTest, AKilledDaemonIsAPeerLost) {
  Daemons daemons({1, 1});
  ChildProcess first(Options(daemons, 0, Endless()));
  ChildProcess second(Options(daemons, 1, Endless()));
  ASSERT_TRUE(AwaitSteps());
  daemons.process(1).Signal(SIGKILL);
  EXPECT_EQ(first.Wait(kTimeout), 4) << ReadWholeFile(folder_.File("err0"));
  EXPECT_THAT(ReadWholeFile(folder_.File("err0")), HasSubstr("node 1"));
  EXPECT_EQ(second.Wait(kTimeout), 4) << ReadWholeFile(folder_.File("err1"));
  EXPECT_EQ(daemons.process(1).Wait(kTimeout), 128 + SIGKILL);
}

TEST_F(TrainExitTest, ARankThatIsTakenIsAnErrorOfTheSecondOnly) {
  const Daemons daemons({1});
  ChildProcess first(Options(daemons, 0, Endless()));
  ASSERT_TRUE(AwaitSteps());
  ChildOptions options = Options(daemons, 0, Endless());
  options.output_path = folder_.File("out_second");
  options.error_path = folder_.File("err_second");
  const ChildResult second = RunChild(options, kTimeout);
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.error,
              AllOf(HasSubstr("rank 0 is taken by pid"), HasSubstr(std::to_string(first.pid()))));
  first.Signal(SIGTERM);
  EXPECT_EQ(first.Wait(kTimeout), 128 + SIGTERM);
}

}  // namespace
}  // namespace zerod
