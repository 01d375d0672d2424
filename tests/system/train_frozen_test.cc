// Fine-tuning a part of a stored model: what is frozen costs nothing and comes out as it went in.

#include <cstdio>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/process_memory.h"
#include "tests/system/stored_model.h"
#include "tests/system/train_program.h"

namespace zerod {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr int64_t kMegabyte = 1'000'000;

bool IsTrained(const std::string& name) { return name.find("layers.1.") != std::string::npos; }

/// Compares a stored model with the one that was trained from it.
void ExpectFrozenBytesEqual(const std::string& before, const std::string& after) {
  const auto old_tensors = ReadStoredModel(before);
  const auto new_tensors = ReadStoredModel(after);
  ASSERT_EQ(old_tensors.size(), new_tensors.size());
  for (const auto& [name, tensor] : old_tensors) {
    ASSERT_TRUE(new_tensors.contains(name)) << name;
    EXPECT_EQ(SameTensor(tensor, new_tensors.at(name)), !IsTrained(name)) << name;
  }
}

/// Frozen shards have no gradient and no optimizer state; the trained ones have 12 bytes for 4.
void ExpectStateOfTrainedShardsOnly(const Daemons& daemons, int node) {
  int trained = 0;
  const json shards = json::parse(daemons.Ctl(node, {"shards"})).at("shards");
  for (const json& shard : shards) {
    const bool trainable = shard.at("layer_name") == "layers.1";
    EXPECT_EQ(shard.at("trainable").get<bool>(), trainable) << shard;
    EXPECT_EQ(shard.at("state_bytes").get<int64_t>(),
              trainable ? 3 * shard.at("bytes").get<int64_t>() : 0)
        << shard;
    trained += trainable ? 1 : 0;
  }
  EXPECT_EQ(trained, 1);
}

TEST(TrainFrozenTest, AllButOneLayerComeOutAsTheyWentInAndHaveNoState) {
  const ScratchFolder folder;
  WriteModel(folder.File("model"), {.files = 2});
  WriteTokens(folder.File("tokens"), 500, ModelShape().vocab_size);
  const Daemons daemons({1, 1}, {"--model-root", folder.path().string()});
  TrainProgram run(daemons, {"--model", folder.File("model"), "--tokens", folder.File("tokens"),
                             "--batch", "2", "--seq", "16", "--steps", "1", "--weight-decay", "0.1",
                             "--train", "layers\\.1\\.", "--export", folder.File("out")});
  run.ExpectEnd(0);
  EXPECT_THAT(run.output(0), HasSubstr("trained: 12.7k parameters in 12 of 40 tensors; frozen: "));
  EXPECT_THAT(run.output(0), HasSubstr("exported to " + folder.File("out")));
  ExpectFrozenBytesEqual(folder.File("model"), folder.File("out"));
  for (const int node : {0, 1}) ExpectStateOfTrainedShardsOnly(daemons, node);
}

TEST(TrainFrozenTest, WhatIsFrozenInABfloat16JobComesOutWithItsStoredBits) {
  const ScratchFolder folder;
  WriteModel(folder.File("model"), {.files = 2});
  WriteTokens(folder.File("tokens"), 500, ModelShape().vocab_size);
  const Daemons daemons({1, 1}, {"--model-root", folder.path().string()});
  TrainProgram run(daemons, {"--model", folder.File("model"), "--tokens", folder.File("tokens"),
                             "--batch", "2", "--seq", "16", "--steps", "1", "--dtype", "bf16",
                             "--train", "layers\\.1\\.", "--export", folder.File("out")});
  run.ExpectEnd(0);
  ExpectFrozenBytesEqual(folder.File("model"), folder.File("out"));
}

struct Refused {
  std::vector<std::string> arguments;
  std::string reason;
};

TEST(TrainFrozenTest, OptionsThatDontFitTheFilesAreNamedWithoutADaemon) {
  const ScratchFolder folder;
  WriteModel(folder.File("model"), {});
  WriteTokens(folder.File("tokens"), 500, ModelShape().vocab_size);
  for (const Refused& refused :
       {Refused{{"--freeze", "layers.7"}, "--freeze 'layers.7' matches none of the model's 40"},
        Refused{{"--train", "layers", "--freeze", "layers"}, "leave no parameter to train"},
        Refused{{"--freeze", "("}, "--freeze: '(' isn't a regular expression"},
        Refused{{"--freeze", "(([a-z_.0-9])+)+!$"}, "matches none of the model's 40"},
        Refused{{"--mask-documents", "--document-end", "100000"}, "--document-end is 100000"},
        Refused{{"--sample-ids", "500"}, "token 500 at place 0 of the prompt"},
        Refused{{"--sample", "a", "--sample-top-p", "0"}, "--sample-top-p is 0"},
        Refused{{"--export", "/proc/none/x"}, "--export /proc/none/x: /proc/none isn't a folder"},
        Refused{{"--export", folder.File("tokens")}, "isn't a folder that can be written to"}}) {
    ChildOptions options;
    options.arguments = {ZEROD_PROGRAM_ZEROD_TRAIN,
                         "--model",
                         folder.File("model"),
                         "--tokens",
                         folder.File("tokens"),
                         "--seq",
                         "16"};
    options.arguments.insert(options.arguments.end(), refused.arguments.begin(),
                             refused.arguments.end());
    const ChildResult result = RunChild(options, std::chrono::seconds(30));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.error, HasSubstr(refused.reason));
  }
}

/// "predicted peak 612.3 MiB" of the summary at the start.
int64_t PredictedBytes(const std::string& output) {
  const std::string key = "predicted peak ";
  const size_t at = output.find(key);
  if (at == std::string::npos) return 0;
  size_t end = 0;
  const double number = std::stod(output.substr(at + key.size()), &end);
  EXPECT_EQ(output.substr(at + key.size() + end, 4), " MiB") << output;
  return static_cast<int64_t>(number * (1 << 20));
}

// Nobody holds a model: neither its daemons nor its workers have room for it.
TEST(TrainFrozenTest, AModelOfOneGigabyteIsImportedTrainedAndExportedInLessThanItsBytes) {
  const ScratchFolder folder;
  const ModelShape shape{
      .vocab_size = 512, .hidden_size = 1024, .layers = 20, .heads = 16, .files = 3};
  const int64_t model_bytes = WriteModel(folder.File("model"), shape);
  ASSERT_GT(model_bytes, 1000 * kMegabyte);
  WriteTokens(folder.File("tokens"), 500, shape.vocab_size);
  Daemons daemons({1, 1}, {"--model-root", folder.path().string()});
  TrainProgram run(daemons, {"--model", folder.File("model"), "--tokens", folder.File("tokens"),
                             "--batch", "2", "--seq", "16", "--steps", "1", "--train",
                             "layers\\.1\\.", "--export", folder.File("out")});
  MemoryPeaks workers({run.rank(0).pid(), run.rank(1).pid()});
  const bool ended = WaitUntil(std::chrono::seconds(150), [&] {
    workers.Sample();
    return run.rank(0).Wait(std::chrono::milliseconds(0)) >= 0 &&
           run.rank(1).Wait(std::chrono::milliseconds(0)) >= 0;
  });
  EXPECT_TRUE(ended);
  run.ExpectEnd(0);
  ExpectFrozenBytesEqual(folder.File("model"), folder.File("out"));
  const int64_t predicted_bytes = PredictedBytes(run.output(0));
  for (const int node : {0, 1}) {
    ExpectStateOfTrainedShardsOnly(daemons, node);
    const int64_t daemon_bytes = PeakResidentBytes(daemons.process(node).pid());
    const int64_t worker_bytes = workers.bytes(static_cast<size_t>(node));
    std::printf("[ MEMORY   ] node %d, MB: model %ld, daemon predicted %ld, peak %ld, worker %ld\n",
                node, model_bytes / kMegabyte, predicted_bytes / kMegabyte,
                daemon_bytes / kMegabyte, worker_bytes / kMegabyte);
    EXPECT_LE(daemon_bytes, predicted_bytes + 200 * kMegabyte);
    EXPECT_LE(daemon_bytes, 1000 * kMegabyte);
    EXPECT_LE(worker_bytes, 300 * kMegabyte);
  }
}

}  // namespace
}  // namespace zerod
