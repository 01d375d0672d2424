// Gradients of small models whose right values are known in closed form: shared weights, sums and
// means over ranks and micro-batches, padding.

#include <cmath>

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "tests/system/case_layers.h"
#include "tests/system/small_model.h"

namespace zerod {
namespace {

using testing::DoubleNear;
using testing::Each;

const std::vector<std::vector<int>> kPlacements = {{1}, {2}, {1, 1}, {3}, {2, 2}};

std::string TextOf(const std::vector<int>& ranks) {
  std::string text = "ranks per node:";
  for (int count : ranks) text += Concat(" ", count);
  return text;
}

void ExpectNear(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 1e-6 * std::max(1.0, std::abs(expected[i]))) << "at " << i;
  }
}

TEST(CaseGradientsTest, ATiedEmbeddingWithUnevenRowsIsUpdatedInEveryRow) {
  for (const auto& placement : kPlacements) {
    const Daemons daemons(placement);
    for (const int64_t rows : {5, 3, 1025}) {
      SCOPED_TRACE(Concat(TextOf(placement), ", ", rows, " rows"));
      const auto values = RunRanksOrThrow(daemons, [rows](const SessionOptions& options) {
        const auto session = Session::Connect(options);
        ShardedModel model(*session, {});
        at::Tensor table = Filled({rows, 1}, 1);
        const size_t embed = model.AddLayer("embed", [&] {
          return ModuleOf({"embed", [&] { return Tensors{table}; },
                           [](const Tensors& p, const Tensors& token) {
                             return Tensors{p[0].index_select(0, token[0])};
                           }});
        });
        const size_t head = model.AddLayer("head", [&] {
          return ModuleOf(
              {"head", [&] { return Tensors{table}; },
               [](const Tensors& p, const Tensors& in) { return Tensors{(p[0] * in[0]).sum()}; }});
        });
        model.Call(head, model.Call(embed, {at::zeros({1}, at::kLong)}))[0].backward();
        model.Step(PlainSgd(0.1));
        const at::Tensor after = model.ReadTensor("embed.p0");
        session->Detach(true);
        return Values({after});
      });
      std::vector<double> expected(rows, 0.9);
      expected[0] = 1 - 0.1 * static_cast<double>(rows + 1);
      for (const auto& rank : values) ExpectNear(rank, expected);
    }
  }
}

/// Every rank trains one step on loss = factor(rank) * sum(w); returns the summed gradient and the
/// weights after the step.
std::vector<std::vector<double>> TrainScaledSum(const Daemons& daemons, std::vector<int64_t> sizes,
                                                const StepOptions& step) {
  return RunRanksOrThrow(daemons, [&](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedModel model(*session, {});
    AddLayers(model, {{"w", [&] { return Tensors{Filled(sizes, 0)}; }, AddWeighted(1)}});
    const at::Tensor out = model.Call(0, {Filled({}, 0)})[0];
    (out * (options.rank + 1.0)).backward();
    std::vector<double> values = Values({model.ReadTensor("w.p0", Content::kGradient)});
    model.Step(step);
    Append(values, model.ReadTensor("w.p0"));
    session->Detach(true);
    return values;
  });
}

TEST(CaseGradientsTest, TheDefaultDivisorMakesTheMeanOverRanks) {
  for (const auto& placement : kPlacements) {
    SCOPED_TRACE(TextOf(placement));
    const Daemons daemons(placement);
    const double world = daemons.World();
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{3, 4}, {1}, {}}) {
      for (const auto& rank : TrainScaledSum(daemons, sizes, PlainSgd(1))) {
        const size_t half = rank.size() / 2;
        const std::vector<double> sums(rank.begin(), rank.begin() + half);
        const std::vector<double> weights(rank.begin() + half, rank.end());
        EXPECT_THAT(sums, Each(world * (world + 1) / 2));
        EXPECT_THAT(weights, Each(DoubleNear(-(world + 1) / 2, 1e-6)));
      }
    }
  }
}

TEST(CaseGradientsTest, OneRankGetsItsOwnGradient) {
  const Daemons daemons({1});
  const auto values = RunRanksOrThrow(daemons, [](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedModel model(*session, {});
    AddLayers(model, {{"outer.inner", [] { return Tensors{Filled({1}, 3)}; }, AddWeighted(2)}});
    model.Call(0, {Filled({}, 0)})[0].backward();
    std::vector<double> result = Values({model.ReadTensor("outer.inner.p0", Content::kGradient)});
    result.push_back(model.Step(PlainSgd(0.5)).grad_norm);
    Append(result, model.ReadTensor("outer.inner.p0"));
    session->Detach(true);
    return result;
  });
  EXPECT_EQ(values[0], (std::vector<double>{2, 2, 2}));
}

TEST(CaseGradientsTest, PaddingIsZeroAndInNoNormThoughFreshMemoryIsPoisoned) {
  for (const std::vector<int>& placement : {std::vector<int>{4}, {2, 2}, {3}}) {
    SCOPED_TRACE(TextOf(placement));
    const Daemons daemons(placement, {"--failpoints", "poison_fresh_memory=1"});
    const auto values = RunRanksOrThrow(daemons, [](const SessionOptions& options) {
      const auto session = Session::Connect(options);
      ShardedModel model(*session, {});
      AddLayers(model, {{"w", [] { return Tensors{Filled({5}, 1)}; }, AddWeighted(2)},
                        {"unused",
                         [] {
                           return Tensors{Filled({7}, 1), Filled({}, 1)};
                         },
                         AddWeighted(1)}});
      std::vector<double> result;
      for (int step = 0; step < 3; ++step) {
        const at::Tensor out = model.Call(1, model.Call(0, {Filled({}, 0)}))[0];
        out.backward();
        result.push_back(model.Step(PlainSgd(0)).grad_norm);
      }
      const Mapping region = session->MapRegion(0, 0, model.plan(0).chunks[0].RegionBytes());
      const c10::NoGradGuard no_grad;
      model.Call(0, {Filled({}, 0)});  // gathers the newest version
      const auto* elements = reinterpret_cast<const float*>(region.data() + kRegionHeaderBytes);
      double largest = 0;
      for (int64_t i = 5; i < model.plan(0).chunks[0].padded_numel; ++i) {
        if (!(std::abs(elements[i]) <= largest)) largest = elements[i];
      }
      result.push_back(largest);
      model.Sum({0});
      session->Detach(true);
      return result;
    });
    // w: 5 elements of gradient 2, unused.p0: 7 of gradient 1, unused.p1 has none.
    const double norm = std::sqrt(5 * 4 + 7);
    for (const auto& rank : values) ExpectNear(rank, {norm, norm, norm, 0});
  }
}

TEST(CaseGradientsTest, ALayerAppliedSeveralTimesGetsTheSumOfItsUses) {
  for (const auto& placement : kPlacements) {
    const Daemons daemons(placement);
    for (const int times : {2, 3, 5}) {
      SCOPED_TRACE(Concat(TextOf(placement), ", ", times, " times"));
      const auto values = RunRanksOrThrow(daemons, [times](const SessionOptions& options) {
        const auto session = Session::Connect(options);
        ShardedModel model(*session, {});
        AddLayers(model, {{"w", [] { return Tensors{Filled({1, 1}, 2)}; }, MatVec}});
        Tensors x = {Filled({1}, 1)};
        for (int i = 0; i < times; ++i) x = model.Call(0, x);
        x[0].sum().backward();
        std::vector<double> result = Values({model.ReadTensor("w.p0", Content::kGradient)});
        model.Step(PlainSgd(1));
        Append(result, model.ReadTensor("w.p0"));
        session->Detach(true);
        return result;
      });
      const double gradient = times * std::pow(2, times - 1);
      for (const auto& rank : values) {
        EXPECT_EQ(rank, (std::vector<double>{gradient * daemons.World(), 2 - gradient}));
      }
    }
  }
}

/// Micro-batches with the given gradients on every rank; the weight starts at 0 and is stepped with
/// rate 1, so that it ends at minus the gradient that counted.
double WeightAfter(const Daemons& daemons, const std::function<void(const Apply&, int)>& program,
                   double divisor) {
  const auto values = RunRanksOrThrow(daemons, [&](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedModel model(*session, {});
    AddLayers(model, {{"w", [] { return Tensors{Filled({1}, 0)}; }, AddWeighted(1)},
                      {"other", [] { return Tensors{Filled({1}, 0)}; }, AddWeighted(1)}});
    program(ShardedApply(model), options.rank);
    model.Step(PlainSgd(1, divisor));
    const std::vector<double> result = Values({model.ReadTensor("w.p0")});
    session->Detach(true);
    return result;
  });
  for (const auto& rank : values) EXPECT_EQ(rank, values[0]);
  return values[0][0];
}

TEST(CaseGradientsTest, MicroBatchesAreAddedAndTheDivisorMakesTheMean) {
  for (const auto& placement : kPlacements) {
    SCOPED_TRACE(TextOf(placement));
    const Daemons daemons(placement);
    const auto micro_batches = [](const Apply& apply, int) {
      (apply(0, {Filled({}, 0)})[0] * 1).backward();
      (apply(0, {Filled({}, 0)})[0] * 3).backward();
    };
    EXPECT_EQ(WeightAfter(daemons, micro_batches, daemons.World()), -4);
    EXPECT_EQ(WeightAfter(daemons, micro_batches, 0), -2);
  }
}

TEST(CaseGradientsTest, TheNumberOfTokensAsDivisorMakesTheMeanOverTokens) {
  for (const std::vector<int>& placement : {std::vector<int>{2}, {1, 1}}) {
    const Daemons daemons(placement);
    // Losses per token: 4 on rank 0, three times 1 on rank 1.
    const auto sum_of_tokens = [](const Apply& apply, int rank) {
      (apply(0, {Filled({}, 0)})[0] * (rank == 0 ? 4 : 3)).backward();
    };
    EXPECT_EQ(WeightAfter(daemons, sum_of_tokens, 4), -1.75);
    const auto mean_of_tokens = [](const Apply& apply, int rank) {
      (apply(0, {Filled({}, 0)})[0] * (rank == 0 ? 4 : 1)).backward();
    };
    EXPECT_EQ(WeightAfter(daemons, mean_of_tokens, 0), -2.5);
  }
}

TEST(CaseGradientsTest, AParameterUsedOnlyInTheSecondMicroBatchHasNothingOfTheLastStep) {
  for (const auto& placement : kPlacements) {
    SCOPED_TRACE(TextOf(placement));
    const Daemons daemons(placement);
    const auto values = RunRanksOrThrow(daemons, [](const SessionOptions& options) {
      const auto session = Session::Connect(options);
      ShardedModel model(*session, {});
      AddLayers(model, {{"w", [] { return Tensors{Filled({1}, 0)}; }, AddWeighted(1)},
                        {"other", [] { return Tensors{Filled({1}, 0)}; }, AddWeighted(1)}});
      const at::Tensor zero = Filled({}, 0);
      std::vector<double> result;
      for (const double gradient : {5.0, 1.0, 0.0}) {
        model.Call(1, {zero})[0].backward();
        const Tensors both = gradient == 0 ? model.Call(1, {zero})
                                           : model.Call(1, {model.Call(0, {zero})[0] * gradient});
        both[0].backward();
        Append(result, model.ReadTensor("w.p0", Content::kGradient));
        model.Step(PlainSgd(1, 2 * session->info().mesh.dp));
        Append(result, model.ReadTensor("w.p0"));
      }
      session->Detach(true);
      return result;
    });
    const double world = daemons.World();
    for (const auto& rank : values) {
      EXPECT_EQ(rank, (std::vector<double>{5 * world, -2.5, world, -3, 0, -3}));
    }
  }
}

}  // namespace
}  // namespace zerod
