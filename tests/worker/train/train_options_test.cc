#include "worker/train/train_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/error.h"
#include "worker/train/train_checks.h"

namespace zerod::train {
namespace {

using testing::AllOf;
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
      Read({"--socket", "/run/two.sock", "--job", "mine", "--threads", "2", "--create"});
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
  EXPECT_FALSE(options.sample.prompt.has_value());
  EXPECT_FALSE(options.epochs.has_value());
  EXPECT_EQ(options.decay, Decay::kConstant);
  EXPECT_EQ(options.dtype, DType::kFloat32);
  EXPECT_FALSE(options.export_dtype.has_value());
  EXPECT_EQ(options.sample.top_p, 1);
  EXPECT_FALSE(options.drop);
  EXPECT_FALSE(options.checkpoint);
}

TEST(TrainOptions, ReadsTokensSeedsAndSizes) {
  const TrainOptions options = ReadTrainOptions({"--model",
                                                 "m",
                                                 "--tokens",
                                                 "t.bin",
                                                 "--shuffle",
                                                 "0",
                                                 "--window-bytes",
                                                 "2MiB",
                                                 "--cache-bytes",
                                                 "4096",
                                                 "--optimizer",
                                                 "sgd",
                                                 "--drop",
                                                 "--token-bytes",
                                                 "4",
                                                 "--document-end",
                                                 "0",
                                                 "--eval-tokens",
                                                 "e.bin",
                                                 "--mask-documents"},
                                                RankOneOfTwo(), "1.2")
                                   .options;
  EXPECT_FALSE(options.data_is_text);
  EXPECT_EQ(options.data_path, "t.bin");
  EXPECT_EQ(options.eval_path, "e.bin");
  EXPECT_EQ(options.token_bytes, 4);
  EXPECT_EQ(options.document_end, 0);
  EXPECT_TRUE(options.mask_documents);
  EXPECT_EQ(options.shuffle_seed, 0u);
  EXPECT_EQ(options.session.window_bytes, 2 << 20);
  EXPECT_EQ(options.session.cache_bytes, 4096);
  EXPECT_EQ(options.optimizer, OptimizerKind::kSgd);
  EXPECT_TRUE(options.drop);
}

TEST(TrainOptions, ReadsWhatFineTuningNeeds) {
  const TrainOptions options =
      Read({"--freeze",     "embed",   "--freeze",       "^head",   "--train",        "layers",
            "--no-decay",   "bias$",   "--lr-scale",     "a=b=0.5", "--schedule",     "cosine",
            "--min-lr",     "1e-5",    "--decay-steps",  "7",       "--dtype",        "bf16",
            "--export",     "out",     "--export-dtype", "fp16",    "--epochs",       "1.5",
            "--sample-ids", "1, 2 30", "--sample-top-k", "5",       "--sample-top-p", "0.9"});
  EXPECT_EQ(options.rules.freeze, (std::vector<std::string>{"embed", "^head"}));
  EXPECT_EQ(options.rules.train, std::vector<std::string>{"layers"});
  EXPECT_EQ(options.rules.no_decay, std::vector<std::string>{"bias$"});
  ASSERT_EQ(options.rules.rates.size(), 1U);
  EXPECT_EQ(options.rules.rates[0].pattern, "a=b");
  EXPECT_EQ(options.rules.rates[0].factor, 0.5f);
  EXPECT_EQ(options.decay, Decay::kCosine);
  EXPECT_EQ(options.min_lr, 1e-5);
  EXPECT_EQ(options.decay_steps, 7);
  EXPECT_EQ(options.dtype, DType::kBFloat16);
  EXPECT_EQ(options.export_dtype, DType::kFloat16);
  EXPECT_EQ(options.epochs, 1.5);
  EXPECT_EQ(options.sample.ids, (std::vector<int64_t>{1, 2, 30}));
  EXPECT_EQ(options.sample.top_k, 5);
  EXPECT_EQ(options.sample.top_p, 0.9);
}

TEST(TrainOptions, AttachesToAKeptJobOnly) {
  EXPECT_EQ(Read({"--attach"}).session.mode, AttachMode::kAttach);
}

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
    testing::Values(
        Refused{{"--batch", "0"}, "--batch: '0' is not allowed; give a whole number from 1"},
        Refused{{"--seq", "-3"}, "--seq: '-3'"}, Refused{{"--steps", "-1"}, "--steps"},
        Refused{{"--micro-batches", "0"}, "--micro-batches: '0'"}, Refused{{"--lr", "nan"}, "--lr"},
        Refused{{"--lr", "-1"}, "--lr is -1"}, Refused{{"--lr", "fast"}, "--lr"},
        Refused{{"--beta2", "1.5"}, "from 0 to below 1"},
        Refused{{"--sample-temperature", "inf"}, "--sample-temperature"},
        Refused{{"--sample-top-p", "1.5"}, "above 0 and at most 1"},
        Refused{{"--sample-top-p", "0"}, "--sample-top-p is 0"},
        Refused{{"--sample-ids", "1,x"}, "--sample-ids: \"x\" is no token id"},
        Refused{{"--freeze", "layers.(1"}, "--freeze: 'layers.(1' isn't a regular"},
        Refused{{"--lr-scale", "bias"}, "--lr-scale is \"bias\"; give REGEX=X"},
        Refused{{"--lr-scale", "bias=-1"}, "\"bias=-1\""},
        Refused{{"--schedule", "step"}, "give constant, linear or cosine"},
        Refused{{"--min-lr", "1e-4"}, "--min-lr needs --schedule"},
        Refused{{"--schedule", "linear", "--min-lr", "1"}, "--min-lr is 1, more than"},
        Refused{{"--dtype", "fp16"}, "give fp32 or bf16"},
        Refused{{"--export-dtype", "bf16"}, "--export-dtype needs --export"},
        Refused{{"--epochs", "0"}, "--epochs is 0"},
        Refused{{"--epochs", "1", "--steps", "2"}, "--steps"},
        Refused{{"--token-bytes", "3"}, "2 or 4"},
        Refused{{"--token-bytes", "2"}, "--token-bytes needs --tokens"},
        Refused{{"--vocabulary", "v"}, "--vocabulary needs --tokens"},
        Refused{{"--mask-documents"}, "--mask-documents needs --document-end"},
        Refused{{"--optimizer", "adam"}, "give adamw or sgd"},
        Refused{{"--attach", "--create"}, "exclude each other"},
        Refused{{"--window-bytes", "much"}, "--window-bytes is \"much\""},
        Refused{{"--cache-bytes", "-1"}, "--cache-bytes"},
        Refused{{"--tokens", "t.bin"}, "either --text or --tokens"},
        Refused{{"--threads", "0"}, "--threads: '0'"},
        Refused{{"--learning-rate", "1"}, "--learning-rate"}, Refused{{"--steps"}, "--steps"}));

TEST(TrainOptions, RefusesWholeNumbersOutOfRange) {
  for (const char* option :
       {"--batch", "--seq", "--steps", "--micro-batches", "--warmup", "--decay-steps",
        "--document-end", "--eval-every", "--sample-tokens", "--sample-top-k", "--prefetch",
        "--threads", "--shuffle", "--seed", "--token-bytes"}) {
    for (const char* text :
         {"99999999999999999999", "-99999999999999999999", "-1", "1.5", "0x", ""}) {
      EXPECT_THAT(RefusalOf({"--model", "m", "--text", "t", option, text}),
                  AllOf(HasSubstr(option), HasSubstr("is not allowed; give")))
          << text;
    }
  }
  EXPECT_EQ(Read({"--seed", "18446744073709551615"}).seed, UINT64_MAX);
}

TEST(TrainOptions, RefusesNumbersOutOfRange) {
  for (const char* option : {"--lr", "--min-lr", "--weight-decay", "--clip", "--beta1", "--beta2",
                             "--eps", "--epochs", "--sample-temperature", "--sample-top-p"}) {
    for (const char* text : {"nan", "-1", "inf", "1e999", "one", ""}) {
      EXPECT_THAT(RefusalOf({"--model", "m", "--text", "t", option, text}), HasSubstr(option))
          << text;
    }
  }
  EXPECT_THAT(RefusalOf({"--model", "m", "--text", "t", "--eps", "0"}),
              HasSubstr("--eps is 0; it must be a number above 0"));
  EXPECT_THAT(RefusalOf({"--model", "m", "--text", "t", "--epochs", "1e300"}),
              HasSubstr("--epochs is 1e+300; it must be a number from 0 to 1e+09"));
  EXPECT_THAT(RefusalOf({"--model", "m", "--text", "t", "--beta1", "1"}),
              HasSubstr("--beta1 is 1; it must be a number from 0 to below 1"));
}

TEST(TrainOptions, RefusesEmptyTexts) {
  for (const char* option : {"--model", "--text", "--tokens", "--eval-text", "--log", "--export",
                             "--sample", "--sample-ids", "--vocabulary", "--train", "--freeze",
                             "--no-decay", "--lr-scale", "--job", "--socket"}) {
    EXPECT_THAT(RefusalOf({"--model", "m", "--tokens", "t", option, ""}), HasSubstr(option));
  }
  EXPECT_THAT(RefusalOf({"--model", "m", "--text", "t", "--sample-ids", " , "}),
              HasSubstr("--sample-ids: ' , ' has no token id"));
}

TEST(TrainOptions, RefusesMoreSamplesThanCanBeCounted) {
  EXPECT_THAT(RefusalOf({"--model", "m", "--text", "t", "--steps", "999999999999", "--batch",
                         "2000000000"}),
              HasSubstr("more than 2^62 samples"));
}

TEST(TrainOptions, ABatchNeedsTheMemoryOfItsLogits) {
  TrainOptions options = Read({"--batch", "64", "--seq", "100", "--micro-batches", "4"});
  // On each of two ranks 8 samples at a time: 8 x 100 tokens x 1000 logits of 4 bytes.
  EXPECT_NO_THROW(CheckBatchMemory(options, 1000, 3'200'000));
  EXPECT_THROW(CheckBatchMemory(options, 1000, 3'199'999), Error);
  options.batch = 2147483646;
  options.seq = 2147483647;
  options.micro_batches = 1;
  EXPECT_THROW(CheckBatchMemory(options, 1 << 30, INT64_MAX), Error);
}

TEST(TrainOptions, RefusesACommandLineWithoutModelOrData) {
  EXPECT_THAT(RefusalOf({"--text", "t"}), HasSubstr("--model is missing"));
  EXPECT_THAT(RefusalOf({"--model", "m"}), HasSubstr("either --text or --tokens"));
}

TEST(TrainOptions, AnswersHelpAndVersionWithText) {
  EXPECT_EQ(ReadTrainOptions({"--version"}, {}, "1.2").text_to_print, "zerod-train 1.2\n");
  EXPECT_THAT(ReadTrainOptions({"--help"}, {}, "1.2").text_to_print.value(),
              HasSubstr("--micro-batches"));
}

}  // namespace
}  // namespace zerod::train
