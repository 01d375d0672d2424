#include "worker/train/train_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/error.h"

namespace zerod::train {
namespace {

using testing::HasSubstr;

using Arguments = std::vector<std::string>;

TrainEnvironment RankOneOfTwo() {
  TrainEnvironment environment;
  environment.session.rank = 1;
  environment.session.world_size = 2;
  environment.session.socket_path = "/run/one.sock";
  environment.session.job_id = "of-the-environment";
  environment.threads = 3;
  return environment;
}

TrainOptions Read(const Arguments& arguments) {
  Arguments all = {"--model", "m", "--text", "t.txt"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return ReadTrainOptions(all, RankOneOfTwo(), "1.2").options;
}

/// The message with which a command line is refused.
std::string RefusalOf(const Arguments& arguments) {
  try {
    ReadTrainOptions(arguments, RankOneOfTwo(), "1.2");
  } catch (const Error& error) {
    EXPECT_EQ(ExitCode(error.code()), 2);
    return error.what();
  }
  return "accepted";
}

TEST(TrainOptions, TakesItsPlaceInTheWorldFromTheEnvironment) {
  const TrainOptions options = Read({});
  EXPECT_EQ(options.session.rank, 1);
  EXPECT_EQ(options.session.world_size, 2);
  EXPECT_EQ(options.session.socket_path, "/run/one.sock");
  EXPECT_EQ(options.session.job_id, "of-the-environment");
  EXPECT_EQ(options.session.mode, AttachMode::kAttachOrCreate);
  EXPECT_EQ(options.session.program, "zerod-train");
  EXPECT_EQ(options.threads, 3);
}

TEST(TrainOptions, LetsTheCommandLineWinOverTheEnvironment) {
  const TrainOptions options =
      Read({"--socket", "/run/two.sock", "--job", "mine", "--threads", "2", "--attach", "create"});
  EXPECT_EQ(options.session.socket_path, "/run/two.sock");
  EXPECT_EQ(options.session.job_id, "mine");
  EXPECT_EQ(options.session.mode, AttachMode::kCreate);
  EXPECT_EQ(options.threads, 2);
}

TEST(TrainOptions, HasTheDefaultsThatTheHelpNames) {
  const TrainOptions options = Read({});
  EXPECT_EQ(options.optimizer, OptimizerKind::kAdamW);
  EXPECT_EQ(options.lr, 1e-3);
  EXPECT_EQ(options.beta1, 0.9);
  EXPECT_EQ(options.beta2, 0.95);
  EXPECT_EQ(options.eps, 1e-8);
  EXPECT_EQ(options.weight_decay, 0);
  EXPECT_EQ(options.clip, 0);
  EXPECT_EQ(options.eval_every, 0);
  EXPECT_FALSE(options.shuffle_seed.has_value());
  EXPECT_FALSE(options.sample_prompt.has_value());
  EXPECT_FALSE(options.drop);
  EXPECT_FALSE(options.checkpoint);
}

TEST(TrainOptions, ReadsTokensSeedsAndSizes) {
  const TrainOptions options =
      ReadTrainOptions({"--model", "m", "--tokens", "t.bin", "--shuffle", "0", "--window-bytes",
                        "2MiB", "--cache-bytes", "4096", "--optimizer", "sgd", "--drop"},
                       RankOneOfTwo(), "1.2")
          .options;
  EXPECT_FALSE(options.data_is_text);
  EXPECT_EQ(options.data_path, "t.bin");
  EXPECT_EQ(options.shuffle_seed, 0u);
  EXPECT_EQ(options.session.window_bytes, 2 << 20);
  EXPECT_EQ(options.session.cache_bytes, 4096);
  EXPECT_EQ(options.optimizer, OptimizerKind::kSgd);
  EXPECT_TRUE(options.drop);
}

TEST(TrainOptions, KeepsAnEmptyPrompt) { EXPECT_EQ(Read({"--sample", ""}).sample_prompt, ""); }

struct Refused {
  Arguments arguments;
  std::string reason;
};

class RefusedOptions : public testing::TestWithParam<Refused> {};

TEST_P(RefusedOptions, AreNamedInOneLine) {
  Arguments arguments = {"--model", "m", "--text", "t.txt"};
  arguments.insert(arguments.end(), GetParam().arguments.begin(), GetParam().arguments.end());
  const std::string message = RefusalOf(arguments);
  EXPECT_THAT(message, HasSubstr(GetParam().reason));
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    TrainOptions, RefusedOptions,
    testing::Values(Refused{{"--batch", "0"}, "--batch is 0; it must be at least 1"},
                    Refused{{"--seq", "-3"}, "--seq is -3"}, Refused{{"--steps", "-1"}, "--steps"},
                    Refused{{"--micro-batches", "0"}, "--micro-batches is 0"},
                    Refused{{"--lr", "nan"}, "--lr"}, Refused{{"--lr", "-1"}, "--lr is -1"},
                    Refused{{"--lr", "fast"}, "--lr"}, Refused{{"--beta2", "1.5"}, "from 0 to 1"},
                    Refused{{"--temperature", "inf"}, "--temperature"},
                    Refused{{"--optimizer", "adam"}, "give adamw or sgd"},
                    Refused{{"--attach", "join"}, "create, attach or attach-or-create"},
                    Refused{{"--window-bytes", "much"}, "--window-bytes is \"much\""},
                    Refused{{"--cache-bytes", "-1"}, "--cache-bytes"},
                    Refused{{"--tokens", "t.bin"}, "either --text or --tokens"},
                    Refused{{"--threads", "0"}, "--threads is 0"},
                    Refused{{"--learning-rate", "1"}, "--learning-rate"},
                    Refused{{"--steps"}, "--steps"}));

TEST(TrainOptions, RefusesACommandLineWithoutModelOrData) {
  EXPECT_THAT(RefusalOf({"--text", "t"}), HasSubstr("--model is missing"));
  EXPECT_THAT(RefusalOf({"--model", "m"}), HasSubstr("either --text or --tokens"));
}

TEST(TrainOptions, RefusesASampleOfTokensThatArentText) {
  EXPECT_THAT(RefusalOf({"--model", "m", "--tokens", "t", "--sample", "The"}),
              HasSubstr("--sample needs --text"));
}

TEST(TrainOptions, AnswersHelpAndVersionWithText) {
  EXPECT_EQ(ReadTrainOptions({"--version"}, {}, "1.2").text_to_print, "zerod-train 1.2\n");
  EXPECT_THAT(ReadTrainOptions({"--help"}, {}, "1.2").text_to_print.value(),
              HasSubstr("--micro-batches"));
}

}  // namespace
}  // namespace zerod::train
