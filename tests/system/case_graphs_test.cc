// Graphs that make it hard to know when a layer is needed and when its gradients are complete, on
// several placements, prefetch depths and numbers of gradient slots, against plain LibTorch.

#include <cmath>
#include <memory>

#include <ATen/ops/cat.h>
#include <ATen/ops/tanh.h>
#include <gmock/gmock.h>

#include "tests/system/case_layers.h"
#include "tests/system/small_model.h"

namespace zerod {
namespace {

constexpr int kSteps = 4;
constexpr int64_t kWidth = 4;

using Nested = std::shared_ptr<Apply>;  // for layers that call layers
struct Kind {
  std::string name;
  std::function<std::vector<CaseLayer>(const Nested&)> layers;
  std::function<std::vector<double>(const Apply&, const at::Tensor& input, int step)> program;
};
struct Setting {
  std::vector<int> placement;
  int prefetch_depth;
  int gradient_slots;
};

Tensors TanhLinear(const Tensors& p, const Tensors& in) {
  return {at::tanh(at::matmul(in[0], p[0].t()) + p[1])};
}

CaseLayer Linear(const std::string& name, int seed, bool checkpoint = false) {
  CaseLayer layer{name,
                  [seed] {
                    return Tensors{Formula({kWidth, kWidth}, seed), Formula({kWidth}, seed + 1)};
                  },
                  TanhLinear};
  layer.options.checkpoint = checkpoint;
  return layer;
}

std::vector<CaseLayer> Linears(bool checkpoint = false) {
  return {Linear("a", 1, checkpoint), Linear("b", 5, checkpoint), Linear("c", 9, checkpoint),
          Linear("d", 13, checkpoint)};
}

double Backward(const at::Tensor& output) {
  const at::Tensor loss = (output * output).sum();
  loss.backward();
  return loss.item<double>();
}

at::Tensor Chain(const Apply& apply, const std::vector<size_t>& order, at::Tensor x) {
  for (size_t layer : order) x = apply(layer, {x})[0];
  return x;
}

Kind ChainKind(const std::string& name, std::function<std::vector<size_t>(int step)> order,
               bool checkpoint = false) {
  return {name, [checkpoint](const Nested&) { return Linears(checkpoint); },
          [order](const Apply& apply, const at::Tensor& x, int step) {
            return std::vector<double>{Backward(Chain(apply, order(step), x))};
          }};
}

Kind SomeUnused() {
  return {"ParametersThatAreUsedNowAndThen",
          [](const Nested&) -> std::vector<CaseLayer> {
            return {Linear("a", 1),
                    {"odd",
                     [] {
                       return Tensors{Formula({4}, 2), Formula({4}, 3), Formula({4}, 4)};
                     },
                     [](const Tensors& p, const Tensors& in) {
                       const bool odd = in.size() > 1;
                       return Tensors{odd ? in[0] * p[1] : in[0] + p[0]};
                     }},
                    Linear("never", 5)};
          },
          [](const Apply& apply, const at::Tensor& x, int step) {
            const at::Tensor hidden = apply(0, {x})[0];
            const Tensors in = step % 2 == 1 ? Tensors{hidden, hidden} : Tensors{hidden};
            return std::vector<double>{Backward(apply(1, in)[0])};
          }};
}

Kind SeveralOutputs() {
  return {"SeveralOutputsOfWhichSomeAreUsed",
          [](const Nested&) -> std::vector<CaseLayer> {
            return {Linear("a", 1),
                    {"split",
                     [] {
                       return Tensors{Formula({4}, 2), Formula({4}, 3)};
                     },
                     [](const Tensors& p, const Tensors& in) {
                       return Tensors{in[0] * p[0], at::tanh(in[0] + p[1]), in[0]};
                     }},
                    Linear("b", 5)};
          },
          [](const Apply& apply, const at::Tensor& x, int step) {
            const Tensors parts = apply(1, {apply(0, {x})[0]});
            const at::Tensor out = step % 2 == 0 ? parts[0] + apply(2, {parts[1]})[0]
                                                 : apply(2, {parts[1]})[0] + parts[2];
            return std::vector<double>{Backward(out)};
          }};
}

Kind ForwardsFirst() {
  return {"SeveralForwardsBeforeTheirBackwards", [](const Nested&) { return Linears(); },
          [](const Apply& apply, const at::Tensor& x, int step) {
            {
              const c10::NoGradGuard evaluation;
              Chain(apply, {0, 1, 2, 3}, x);
            }
            const at::Tensor first = Chain(apply, {0, 1, 2, 3}, x);
            const at::Tensor second = Chain(apply, {0, 1, 2, 3}, x * 0.5);
            const bool swapped = step % 2 == 1;
            const double one = Backward(swapped ? second : first);
            return std::vector<double>{one, Backward(swapped ? first : second)};
          }};
}

Kind Branches() {
  return {"BranchesThatJoin", [](const Nested&) { return Linears(); },
          [](const Apply& apply, const at::Tensor& x, int) {
            const at::Tensor a = apply(0, {x})[0];
            const at::Tensor joined = at::cat({apply(1, {a})[0], apply(2, {a})[0]}, 0);
            return std::vector<double>{Backward(apply(3, {joined})[0])};
          }};
}

Kind NestedKind(bool checkpoint) {
  return {checkpoint ? "CheckpointedLayersThatCallLayers" : "LayersThatCallLayers",
          [checkpoint](const Nested& nested) {
            std::vector<CaseLayer> layers = {Linear("inner", 1), Linear("outer", 5, checkpoint),
                                             Linear("last", 9)};
            layers[1].function = [nested](const Tensors& p, const Tensors& in) {
              const at::Tensor before = TanhLinear(p, in)[0];
              return TanhLinear(p, (*nested)(0, {before}));
            };
            return layers;
          },
          [](const Apply& apply, const at::Tensor& x, int step) {
            const at::Tensor hidden = apply(1, {x})[0];
            return std::vector<double>{
                Backward(apply(2, {step % 2 == 0 ? hidden : apply(1, {hidden})[0]})[0])};
          }};
}

Kind LossInLayer() {
  return {"ALossMadeInTheLastLayer",
          [](const Nested&) {
            std::vector<CaseLayer> layers = Linears();
            layers[3].function = [](const Tensors& p, const Tensors& in) {
              const at::Tensor out = TanhLinear(p, {TanhLinear(p, in)[0]})[0];
              return Tensors{(out * out).sum()};
            };
            return layers;
          },
          [](const Apply& apply, const at::Tensor& x, int) {
            const at::Tensor loss = Chain(apply, {0, 1, 2, 3}, x);
            loss.backward();
            return std::vector<double>{loss.item<double>()};
          }};
}

Kind FrozenAround() {
  return {"FrozenLayersAroundTrainableOnes",
          [](const Nested&) {
            std::vector<CaseLayer> layers = Linears();
            layers[0].frozen = layers[2].frozen = layers[3].frozen = true;
            return layers;
          },
          [](const Apply& apply, const at::Tensor& x, int) {
            return std::vector<double>{Backward(Chain(apply, {0, 1, 2, 3}, x))};
          }};
}

const std::vector<Kind>& Kinds() {
  static const std::vector<Kind> kinds = {
      ChainKind("LayersUsedAgainAndAgain",
                [](int) { return std::vector<size_t>{0, 1, 2, 3, 0, 1, 2, 3, 0}; }),
      ChainKind("OneLayerTwiceInARow",
                [](int) {
                  return std::vector<size_t>{0, 1, 1, 2};
                }),
      ChainKind("SkippedLayers",
                [](int step) {
                  return step % 2 == 0 ? std::vector<size_t>{0, 1, 3} : std::vector<size_t>{0, 2};
                }),
      ChainKind(
          "AnOrderThatChanges",
          [](int step) {
            return step < 2 ? std::vector<size_t>{0, 2, 1, 3} : std::vector<size_t>{3, 1, 0, 2};
          }),
      ChainKind(
          "CheckpointedLayers",
          [](int) {
            return std::vector<size_t>{0, 1, 2, 3};
          },
          true),
      ChainKind(
          "CheckpointedLayersUsedTwice",
          [](int) {
            return std::vector<size_t>{0, 1, 0, 1, 2};
          },
          true),
      SomeUnused(),
      SeveralOutputs(),
      ForwardsFirst(),
      Branches(),
      NestedKind(false),
      NestedKind(true),
      FrozenAround(),
      LossInLayer(),
  };
  return kinds;
}

at::Tensor InputOf(int rank, int step) { return Formula({2, kWidth}, 50 + 3 * rank + 7 * step); }

std::vector<double> Train(const Kind& kind, const Setting& setting, SessionOptions options) {
  options.gradient_slots = setting.gradient_slots;
  options.job_id = kind.name;
  const auto session = Session::Connect(options);
  ShardedOptions sharded;
  sharded.prefetch_depth = setting.prefetch_depth;
  ShardedModel model(*session, sharded);
  const auto nested = std::make_shared<Apply>(ShardedApply(model));
  AddLayers(model, kind.layers(nested));
  std::vector<double> result;
  for (int step = 0; step < kSteps; ++step) {
    model.BeginPass();
    const std::vector<double> losses =
        kind.program(ShardedApply(model), InputOf(options.rank, step), step);
    for (double loss : model.Sum(losses)) result.push_back(loss);
    std::vector<std::string> names;
    for (size_t layer = 0; layer < model.layer_count(); ++layer) {
      for (const TensorSpec& tensor : model.plan(layer).spec.tensors) {
        if (tensor.trainable) names.push_back(tensor.name);
      }
    }
    for (const auto& name : names) Append(result, model.ReadTensor(name, Content::kGradient));
    model.Step(PlainSgd(0.125, session->info().mesh.dp));
    for (const auto& name : names) Append(result, model.ReadTensor(name));
  }
  session->Detach(true);
  return result;
}

std::vector<double> TrainPlain(const Kind& kind, int world) {
  const auto nested = std::make_shared<Apply>();
  PlainLayers plain(kind.layers(nested));
  *nested = plain.Applier();
  std::vector<double> result;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> sums;
    for (int rank = 0; rank < world; ++rank) {
      const auto losses = kind.program(plain.Applier(), InputOf(rank, step), step);
      sums.resize(losses.size());
      for (size_t i = 0; i < losses.size(); ++i) sums[i] += losses[i];
    }
    result.insert(result.end(), sums.begin(), sums.end());
    for (const at::Tensor& parameter : plain.Trainable()) {
      const at::Tensor& gradient = parameter.grad();
      Append(result, gradient.defined() ? gradient : Filled(parameter.sizes(), 0));
    }
    plain.SgdStep(0.125, world);
    for (const at::Tensor& parameter : plain.Trainable()) Append(result, parameter);
  }
  return result;
}

class CaseGraphsTest : public testing::TestWithParam<size_t> {};

TEST_P(CaseGraphsTest, TrainsAsInPlainLibTorch) {
  const Kind& kind = Kinds()[GetParam()];
  const std::vector<Setting> settings = {{{1}, 1, 2}, {{2}, 0, 1}, {{1, 1}, 1, 2}, {{2, 1}, 3, 1}};
  for (const Setting& setting : settings) {
    const Daemons daemons(setting.placement);
    const auto values = RunRanksOrThrow(
        daemons, [&](const SessionOptions& options) { return Train(kind, setting, options); });
    const std::vector<double> expected = TrainPlain(kind, daemons.World());
    for (const auto& rank : values) {
      ASSERT_EQ(rank.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(rank[i], expected[i], 1e-5 * std::max(1.0, std::abs(expected[i])))
            << "value " << i << " with prefetch depth " << setting.prefetch_depth
            << " in a world of " << daemons.World();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CaseGraphsTest, testing::Range<size_t>(0, 14),
                         [](const auto& info) { return Kinds()[info.param].name; });

std::vector<double> GradientsOfThree(const SessionOptions& options, bool checkpoint, int depth) {
  const auto session = Session::Connect(options);
  ShardedOptions sharded;
  sharded.prefetch_depth = depth;
  ShardedModel model(*session, sharded);
  std::vector<CaseLayer> layers = {Linear("a", 1, checkpoint), Linear("b", 5, checkpoint),
                                   Linear("c", 9, checkpoint)};
  layers[1].frozen = true;
  AddLayers(model, layers);
  std::vector<double> result;
  for (int step = 0; step < kSteps; ++step) {
    model.BeginPass();
    Chain(ShardedApply(model), {0, 1, 2}, InputOf(options.rank, step)).sum().backward();
    for (const char* name : {"a.p0", "a.p1", "c.p0", "c.p1"}) {
      Append(result, model.ReadTensor(name, Content::kGradient));
    }
    model.Step(PlainSgd(0.1));
  }
  session->Detach(true);
  return result;
}

TEST(CaseCheckpointTest, FrozenLayersAndPrefetchGiveTheSameBitsAsWithoutCheckpoints) {
  for (const std::vector<int>& placement : {std::vector<int>{2}, {1, 1}, {1}}) {
    const Daemons daemons(placement);
    for (const int depth : {0, 1, 3}) {
      const auto run = [&](bool checkpoint) {
        return RunRanksOrThrow(daemons, [&](const SessionOptions& options) {
          return GradientsOfThree(options, checkpoint, depth);
        });
      };
      EXPECT_EQ(run(true), run(false)) << "prefetch depth " << depth;
    }
  }
}

}  // namespace
}  // namespace zerod
