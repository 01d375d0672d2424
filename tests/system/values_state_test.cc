// State that the daemons keep: reading and writing whole tensors, what frozen layers cost, and jobs
// that outlive their workers.

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/ranks.h"
#include "tests/system/small_model.h"

namespace zerod {
namespace {

using nlohmann::json;

constexpr int64_t kRows = 6;

void AppendAll(ShardedModel& model, Content content, std::vector<double>& values) {
  for (const std::string& name : model.tensor_names()) {
    Append(values, model.ReadTensor(name, content));
  }
}

/// Steps `first` to `first + count` on this rank's batches; appends loss and norm of each.
void Train(ShardedSequential& model, int rank, int first, int count, std::vector<double>& values) {
  for (int step = first; step < first + count; ++step) {
    const int64_t batch = 10 * step + rank;
    const at::Tensor loss =
        LossOf(model.Forward(InputBatch(batch, kRows)), TargetBatch(batch, kRows));
    loss.backward();
    StepOptions options;
    options.learning_rate = 0.01;
    options.weight_decay = 0.1;
    options.values = {loss.item<double>()};
    options.private_state = Concat("rank ", rank, " after step ", step);
    const StepResult result = model.Step(options);
    values.push_back(result.values[0]);
    values.push_back(result.grad_norm);
  }
}

class PlacementTest : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(PlacementTest, WrittenTensorsAreReadBackAndUsedByTheNextForward) {
  const Daemons daemons(GetParam());
  const auto values = RunRanksOrThrow(daemons, [](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedSequential model(*session, {});
    AddSmallModel(model);
    std::vector<double> rank_values;
    const c10::NoGradGuard no_grad;
    model.Forward(InputBatch(0, kRows));  // a copy of the old values is there
    model.WriteTensor("second.weight",
                      options.rank == 0 ? Formula({kOutput, kHidden}, 77) : at::Tensor());
    model.WriteTensor("first.bias", options.rank == 0 ? Formula({kHidden}, 78) : at::Tensor());
    AppendAll(model, Content::kParameter, rank_values);
    Append(rank_values, model.Forward(InputBatch(0, kRows)));
    AppendAll(model, Content::kGradient, rank_values);
    session->Detach(true);
    return rank_values;
  });
  PlainModel plain;
  const c10::NoGradGuard no_grad;
  plain.second->weight.copy_(Formula({kOutput, kHidden}, 77));
  plain.first->bias.copy_(Formula({kHidden}, 78));
  std::vector<double> expected = Values(plain.Parameters());
  const size_t parameters = expected.size();
  Append(expected, plain.Forward(InputBatch(0, kRows)));
  expected.resize(expected.size() + parameters);  // no gradient yet
  for (const auto& rank_values : values) EXPECT_EQ(rank_values, expected);
}

TEST_P(PlacementTest, AJobKeptByDetachGoesOnWithTheBitsOfAnUninterruptedRun) {
  std::vector<std::vector<std::vector<double>>> runs;
  for (const bool interrupted : {false, true}) {
    const Daemons daemons(GetParam());
    auto part = [&](AttachMode mode, int first, int count, bool drop) {
      return RunRanksOrThrow(daemons, [=](SessionOptions options) {
        options.mode = mode;
        options.job_id = "kept";
        const auto session = Session::Connect(options);
        if (mode == AttachMode::kAttach) {
          const std::string expected = Concat("rank ", options.rank, " after step ", first - 1);
          if (session->info().created || session->info().step != static_cast<uint64_t>(first) ||
              session->info().private_state != expected) {
            throw std::runtime_error("attached to a job that isn't as it was left");
          }
        }
        ShardedSequential model(*session, {});
        AddSmallModel(model);
        std::vector<double> values;
        Train(model, options.rank, first, count, values);
        for (Content content : {Content::kParameter, Content::kExpAvg, Content::kExpAvgSq}) {
          if (drop) AppendAll(model, content, values);
        }
        session->Detach(drop);
        return values;
      });
    };
    if (!interrupted) {
      runs.push_back(part(AttachMode::kCreate, 0, 6, true));
      continue;
    }
    runs.push_back(part(AttachMode::kCreate, 0, 3, false));
    const auto rest = part(AttachMode::kAttach, 3, 3, true);
    for (size_t rank = 0; rank < rest.size(); ++rank) {
      runs.back()[rank].insert(runs.back()[rank].end(), rest[rank].begin(), rest[rank].end());
    }
  }
  EXPECT_EQ(runs[0], runs[1]);
}

INSTANTIATE_TEST_SUITE_P(Placements, PlacementTest,
                         ::testing::Values(std::vector<int>{1}, std::vector<int>{2},
                                           std::vector<int>{2, 1}),
                         [](const auto& ranks) {
                           std::string text = "Ranks";
                           for (int count : ranks.param) text += Concat("_", count);
                           return text;
                         });

TEST(OtherModelTest, IsRefusedWithTheFirstDifferenceAndTheJobStays) {
  const Daemons daemons({2});
  auto attach = [&](int64_t hidden, const std::string& last, bool drop) {
    return RunRanks(daemons, [=](const SessionOptions& options) {
      const auto session = Session::Connect(options);
      ShardedSequential model(*session, {});
      model.AddLayer("first", [&] { return FormulaLinear(kInput, hidden, 1); });
      model.AddLayer(last, [&] { return FormulaLinear(hidden, kOutput, 3); });
      std::vector<double> values;
      Train(model, options.rank, 0, 1, values);
      session->Detach(drop);
      return values;
    });
  };
  for (const RankOutcome& outcome : attach(kHidden, "second", false)) {
    ASSERT_TRUE(outcome.ok) << outcome.error;
  }
  for (const RankOutcome& outcome : attach(kHidden + 1, "second", false)) {
    EXPECT_FALSE(outcome.ok);
    EXPECT_EQ(outcome.error_code, static_cast<int>(ErrorCode::kFailedPrecondition));
    for (const char* part : {"'first'", "'first.weight'", "[7, 4]", "[6, 4]"}) {
      EXPECT_NE(outcome.error.find(part), std::string::npos) << part << " in " << outcome.error;
    }
  }
  for (const RankOutcome& outcome : attach(kHidden, "other", false)) {
    EXPECT_FALSE(outcome.ok);
    for (const char* part : {"'second'", "'other'"}) {
      EXPECT_NE(outcome.error.find(part), std::string::npos) << part << " in " << outcome.error;
    }
  }
  for (const RankOutcome& outcome : attach(kHidden, "second", true)) {
    EXPECT_TRUE(outcome.ok) << outcome.error;
  }
}

TEST(FrozenTest, FrozenLayersAndTensorsCostNoGradientAndNoOptimizerState) {
  const Daemons daemons({1, 1});
  constexpr int64_t kWidth = 128;
  RunRanksOrThrow(daemons, [](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedSequential model(*session, {.groups = {{.pattern = "^frozen", .train = false},
                                                  {.pattern = "partly.weight", .train = false}}});
    model.AddLayer("frozen", [] { return FormulaLinear(kWidth, kWidth, 1); });
    model.AddLayer("partly", [] { return FormulaLinear(kWidth, kWidth, 3); });
    model.AddLayer("trained", [] { return FormulaLinear(kWidth, kWidth, 5); });
    LossOf(model.Forward(Formula({2, kWidth}, 1)), Formula({2, kWidth}, 2)).backward();
    model.Step({});
    model.Sum({0.0});
    session->Detach(false);
    return std::vector<double>();
  });
  // Per rank: half of a weight and its bias is 8256 elements, so 9 pages of 1024; a bias one page.
  const json shards = json::parse(daemons.Ctl(0, {"shards"})).at("shards");
  int64_t trainable_bytes = 0;
  for (const json& shard : shards) {
    const auto bytes = shard.at("bytes").get<int64_t>();
    const auto trainable = shard.at("trainable").get<bool>();
    EXPECT_EQ(shard.at("state_bytes").get<int64_t>(), trainable ? 3 * bytes : 0) << shard;
    EXPECT_EQ(trainable, shard.at("layer_name") == "trained" || bytes == 4096) << shard;
    if (trainable) trainable_bytes += bytes;
  }
  EXPECT_EQ(shards.size(), 4U);
  EXPECT_EQ(trainable_bytes, (9 + 1) * 4096);
  int compared = 0;
  const json classes = json::parse(daemons.Ctl(0, {"memory"})).at("classes");
  for (const json& entry : classes) {
    const int copies = entry.at("name") == "gradients"   ? 1
                       : entry.at("name") == "optimizer" ? 2
                                                         : 0;
    if (copies == 0) continue;
    ++compared;
    EXPECT_EQ(entry.at("predicted_bytes").get<int64_t>(), copies * trainable_bytes) << entry;
    EXPECT_LE(entry.at("actual_bytes").get<int64_t>(), copies * trainable_bytes) << entry;
  }
  EXPECT_EQ(compared, 2);
}

}  // namespace
}  // namespace zerod
