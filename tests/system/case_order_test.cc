// Ranks that run different programs, and layers that run in another order than they were
// registered.

#include <gmock/gmock.h>

#include "tests/system/case_layers.h"
#include "tests/system/small_model.h"

namespace zerod {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

// Far below the deadline for late ranks (120 s), far above what a loaded machine needs.
constexpr milliseconds kErrorTimeout{8000};

std::vector<CaseLayer> SameShape(const std::vector<std::string>& names) {
  std::vector<CaseLayer> layers;
  layers.reserve(names.size());
  for (const std::string& name : names) {
    layers.push_back({name, [] { return Tensors{Filled({4, 4}, 0.25)}; }, MatVec});
  }
  return layers;
}

at::Tensor Run(ShardedModel& model, const std::vector<size_t>& order) {
  model.BeginPass();
  Tensors x = {Filled({4}, 1)};
  for (size_t layer : order) x = model.Call(layer, x);
  return x[0].sum();
}

/// What the ranks do after `common_steps` equal steps.
struct Divergence {
  std::vector<size_t> rank0;
  std::vector<size_t> rank1;
  int common_steps = 0;
  bool evaluation = false;
};

std::vector<RankOutcome> Diverge(const Daemons& daemons, const Divergence& divergence) {
  return RunRanks(daemons, [&](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedModel model(*session, {});
    AddLayers(model, SameShape({"a", "b", "c", "d"}));
    for (int step = 0; step < divergence.common_steps; ++step) {
      Run(model, {0, 1, 2, 3}).backward();
      model.Step(PlainSgd(0.1));
    }
    const auto& order = options.rank == 0 ? divergence.rank0 : divergence.rank1;
    if (divergence.evaluation) {
      const c10::NoGradGuard no_grad;
      return model.Sum({Run(model, order).item<double>()});
    }
    Run(model, order).backward();
    model.Step(PlainSgd(0.1));
    return std::vector<double>{};
  });
}

void ExpectDivergence(const Daemons& daemons, const Divergence& divergence) {
  SCOPED_TRACE(Concat("after ", divergence.common_steps, " equal steps"));
  const auto outcomes = Diverge(daemons, divergence);
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.error_code, static_cast<int>(ErrorCode::kAborted)) << outcome.error;
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("diverge at operation "), HasSubstr("rank 0"),
                                     HasSubstr("rank 1"), HasSubstr("of layer ")));
    EXPECT_LT(outcome.took, kErrorTimeout);
  }
  if (divergence.common_steps == 0) return;  // a job that has taken no step goes with its attach
  EXPECT_EQ(NumberIn(daemons.Ctl(0, {"jobs"}), "step"), divergence.common_steps);
  daemons.Ctl(0, {"drop", "default"});
  if (daemons.OptionsOf(1).local_rank == 0) daemons.Ctl(1, {"drop", "default"});
}

class CaseOrderTest : public testing::TestWithParam<std::vector<int>> {};

TEST_P(CaseOrderTest, ASkippedLayerIsAnErrorOnBothRanks) {
  const Daemons daemons(GetParam());
  for (const int steps : {0, 1, 2}) {
    ExpectDivergence(daemons, {.rank0 = {0, 1, 2, 3}, .rank1 = {0, 1, 3}, .common_steps = steps});
  }
}

TEST_P(CaseOrderTest, ALayerCalledTwiceIsAnErrorOnBothRanks) {
  const Daemons daemons(GetParam());
  for (const int steps : {0, 1, 2}) {
    ExpectDivergence(daemons,
                     {.rank0 = {0, 1, 2, 3}, .rank1 = {0, 1, 2, 2, 3}, .common_steps = steps});
  }
}

TEST_P(CaseOrderTest, LayersOfOneShapeInAnotherOrderAreAnErrorBeforeAnyStep) {
  const Daemons daemons(GetParam());
  ExpectDivergence(daemons, {.rank0 = {0, 1}, .rank1 = {1, 0}});
  ExpectDivergence(daemons, {.rank0 = {0, 1, 2, 3}, .rank1 = {0, 2, 1, 3}, .common_steps = 1});
}

TEST_P(CaseOrderTest, LayersOfOneShapeInAnotherOrderAreAnErrorBeforeTheEndOfAnEvaluation) {
  const Daemons daemons(GetParam());
  ExpectDivergence(daemons, {.rank0 = {0, 1}, .rank1 = {1, 0}, .evaluation = true});
  ExpectDivergence(
      daemons,
      {.rank0 = {0, 1, 2, 3}, .rank1 = {0, 2, 1, 3}, .common_steps = 1, .evaluation = true});
}

INSTANTIATE_TEST_SUITE_P(Placements, CaseOrderTest,
                         testing::Values(std::vector<int>{2}, std::vector<int>{1, 1}),
                         [](const auto& info) {
                           return info.param.size() == 1 ? "OneDaemon" : "TwoDaemons";
                         });

/// Trains layers registered as a, b, c in the order a, c, b. Each forward notes what its layer's
/// first element is.
std::vector<double> FirstElements(const SessionOptions& options, int depth) {
  const auto session = Session::Connect(options);
  ShardedOptions sharded;
  sharded.prefetch_depth = depth;
  ShardedModel model(*session, sharded);
  std::vector<double> seen;
  std::vector<CaseLayer> layers;
  for (const int weight : {1, 2, 3}) {
    layers.push_back({Concat("layer", weight), [] { return Tensors{Filled({3000}, 0)}; },
                      [&seen, weight](const Tensors& p, const Tensors& in) {
                        const at::Tensor value = p[0].detach();
                        seen.push_back(value.min().item<double>());
                        seen.push_back(value.max().item<double>());
                        return AddWeighted(weight)(p, in);
                      }});
  }
  AddLayers(model, layers);
  for (int step = 0; step < 4; ++step) {
    model.BeginPass();
    Tensors x = {Filled({}, 0)};
    for (size_t layer : {0, 2, 1}) x = model.Call(layer, x);
    x[0].backward();
    model.Step(PlainSgd(1));
  }
  session->Detach(true);
  return seen;
}

TEST(CaseStaleWeightsTest, EveryForwardSeesTheWeightsOfTheLastStepThoughOneRankUpdatesLate) {
  std::vector<double> expected;
  for (int step = 0; step < 4; ++step) {
    for (const int weight : {1, 3, 2}) expected.insert(expected.end(), 2, -step * weight);
  }
  for (const std::vector<int>& placement : {std::vector<int>{2}, {1, 1}}) {
    for (const char* late : {"rank=0,update_delay_layer=0", "rank=1,update_delay_layer=2"}) {
      const Daemons daemons(placement,
                            {"--failpoints", Concat("update_delay_ms=200,update_delay_", late)});
      for (const int depth : {1, 3}) {
        const auto values = RunRanksOrThrow(daemons, [depth](const SessionOptions& options) {
          return FirstElements(options, depth);
        });
        for (const auto& seen : values) EXPECT_EQ(seen, expected);
      }
    }
  }
}

}  // namespace
}  // namespace zerod
