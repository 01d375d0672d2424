// What the user of the library does wrong, or needs to know: windows, frozen layers, backwards that
// fail, graphs that are too old, parameters of released layers.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "tests/system/case_layers.h"
#include "tests/system/small_model.h"
#include "worker/autograd/fault_report.h"

namespace zerod {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

std::vector<CaseLayer> Squares(int count) {
  std::vector<CaseLayer> layers;
  layers.reserve(count);
  for (int i = 0; i < count; ++i) {
    layers.push_back({Concat("square", i), [i] { return Tensors{Formula({4, 4}, i)}; }, MatVec});
  }
  return layers;
}

at::Tensor Loss(const Apply& apply, size_t count, int rank) {
  Tensors x = {Formula({4}, 30 + rank)};
  for (size_t layer = 0; layer < count; ++layer) x = apply(layer, x);
  return x[0].sum();
}

TEST(CaseWindowTest, AWindowOfTwoLayersIsEnoughAndASmallerOneIsRefusedNamingTheBytes) {
  for (const std::vector<int>& placement : {std::vector<int>{2}, {1, 1}}) {
    const Daemons daemons(placement);
    const auto train = [](const SessionOptions& options) {
      const auto session = Session::Connect(options);
      ShardedModel model(*session, {});
      AddLayers(model, Squares(4));
      std::vector<double> result = {static_cast<double>(model.plan(0).gathered_bytes)};
      int64_t most_bytes = 0;
      for (int step = 0; step < 3; ++step) {
        model.BeginPass();
        const at::Tensor loss = Loss(ShardedApply(model), 4, options.rank);
        most_bytes = std::max(most_bytes, model.held_bytes());
        loss.backward();
        model.Step(PlainSgd(0.1));
        Append(result, loss);
      }
      if (options.window_bytes > 0 && most_bytes > options.window_bytes) result.push_back(-1);
      session->Detach(true);
      return result;
    };
    const auto with_window = [&](int64_t bytes) {
      return RunRanks(daemons, [&, bytes](SessionOptions options) {
        options.window_bytes = bytes;
        return train(options);
      });
    };
    const auto unbounded = with_window(0);
    ASSERT_TRUE(unbounded[0].ok) << unbounded[0].error;
    const auto layer_bytes = static_cast<int64_t>(unbounded[0].values[0]);
    const auto fitting = with_window(2 * layer_bytes);
    const auto small = with_window(2 * layer_bytes - 1);
    bool named = false;
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(fitting[rank].values, unbounded[rank].values) << fitting[rank].error;
      // All ranks find it out by themselves; one may hear first that another ended because of it.
      EXPECT_FALSE(small[rank].ok);
      if (small[rank].error_code != static_cast<int>(ErrorCode::kResourceExhausted)) continue;
      named = true;
      EXPECT_THAT(small[rank].error, AllOf(HasSubstr(Concat(2 * layer_bytes - 1, " bytes")),
                                           HasSubstr(Concat("need ", 2 * layer_bytes))));
    }
    EXPECT_TRUE(named) << small[0].error;
  }
}

TEST(CaseFrozenTest, LeasesAndGatheredBytesAreGoneAfterTheBackwardAndFrozenTensorsHaveNoState) {
  for (const std::vector<int>& placement : {std::vector<int>{2}, {1, 1}}) {
    const Daemons daemons(placement);
    const auto values = RunRanksOrThrow(daemons, [&](const SessionOptions& options) {
      const int node = daemons.OptionsOf(1).local_rank == 0 ? options.rank : 0;
      const auto session = Session::Connect(options);
      ShardedModel model(*session, {});
      std::vector<CaseLayer> layers = Squares(3);
      layers[0].frozen = layers[2].frozen = true;
      AddLayers(model, layers);
      for (int step = 0; step < 2; ++step) {
        Loss(ShardedApply(model), 3, options.rank).backward();
        const bool released = WaitUntil(seconds(10), [&] {
          const std::string status = daemons.Ctl(node, {"status"});
          const std::string held = daemons.Ctl(node, {"layers"});
          return NumberIn(status, "resident_gathered_bytes") == 0 &&
                 NumberIn(held, "leases", "square0") == 0 &&
                 NumberIn(held, "leases", "square1") == 0 &&
                 NumberIn(held, "leases", "square2") == 0;
        });
        if (!released) throw std::runtime_error(daemons.Ctl(node, {"layers"}));
        if (step == 0) model.Step(PlainSgd(0.5));
      }
      std::vector<double> result = Values({model.ReadTensor("square1.p0", Content::kGradient)});
      Append(result, model.ReadTensor("square0.p0"));
      session->Detach(false);
      return result;
    });
    std::vector<CaseLayer> layers = Squares(3);
    layers[0].frozen = layers[2].frozen = true;
    PlainLayers plain(layers);
    std::vector<double> expected;
    for (int step = 0; step < 2; ++step) {
      for (int rank = 0; rank < 2; ++rank) Loss(plain.Applier(), 3, rank).backward();
      if (step == 0) plain.SgdStep(0.5, 2);
    }
    Append(expected, plain.Trainable()[0].grad());
    Append(expected, Formula({4, 4}, 0));
    EXPECT_EQ(values[0], expected);
    EXPECT_EQ(values[1], expected);
    const std::string shards = daemons.Ctl(0, {"shards"});
    EXPECT_EQ(NumberIn(shards, "state_bytes", "square0"), 0);
    EXPECT_GT(NumberIn(shards, "state_bytes", "square1"), 0);
    EXPECT_EQ(NumberIn(shards, "state_bytes", "square2"), 0);
  }
}

/// A backward that fails behind the last layer, then good ones. What finished before the failure
/// counts, as in plain LibTorch.
void FailThenTrain(const Apply& apply, int rank, const std::function<void()>& after) {
  Tensors x = {Formula({4}, 30 + rank)};
  x = apply(0, x);
  x = apply(1, x);
  x[0].register_hook(
      [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("on purpose"); });
  const at::Tensor loss = apply(2, x)[0].sum();
  bool failed = false;
  try {
    loss.backward();
  } catch (const std::exception& error) {
    failed = std::string(error.what()).find("on purpose") != std::string::npos;
  }
  if (!failed) throw std::runtime_error("the backward did not fail as it should");
  after();
  Loss(apply, 3, rank).backward();
  after();
}

TEST(CaseBackwardTest, AFailedBackwardIsReportedAndTheNextOneIsRight) {
  for (const std::vector<int>& placement : {std::vector<int>{1}, {2}, {1, 1}}) {
    const Daemons daemons(placement);
    const auto values = RunRanksOrThrow(daemons, [](SessionOptions options) {
      options.gradient_slots = 1;
      const auto session = Session::Connect(options);
      ShardedModel model(*session, {});
      AddLayers(model, Squares(3));
      std::vector<double> result;
      FailThenTrain(ShardedApply(model), options.rank, [&] {
        for (const std::string& name : model.tensor_names()) {
          Append(result, model.ReadTensor(name, Content::kGradient));
        }
      });
      model.Step(PlainSgd(0.5, 1));
      for (const std::string& name : model.tensor_names()) Append(result, model.ReadTensor(name));
      session->Detach(true);
      return result;
    });
    PlainLayers plain(Squares(3));
    std::vector<double> after_failure;
    std::vector<double> after_both;
    for (int rank = 0; rank < daemons.World(); ++rank) {
      std::vector<double>* into = &after_failure;
      FailThenTrain(plain.Applier(), rank, [&] {
        into->clear();
        for (const at::Tensor& p : plain.Trainable()) {
          Append(*into, p.grad().defined() ? p.grad() : Filled(p.sizes(), 0));
        }
        into = &after_both;
      });
    }
    const auto got = values[0].begin();
    if (daemons.World() == 1) {
      EXPECT_EQ(std::vector<double>(got, got + 48), after_failure);
    }
    EXPECT_EQ(std::vector<double>(got + 48, got + 96), after_both);
    plain.SgdStep(0.5, 1);
    std::vector<double> weights;
    for (const at::Tensor& p : plain.Trainable()) Append(weights, p);
    EXPECT_EQ(std::vector<double>(got + 96, values[0].end()), weights);
  }
}

TEST(CaseBackwardTest, ABackwardThroughWhatWasSavedBeforeAStepRaisesAndNamesTheLayer) {
  const Daemons daemons({2});
  const auto values = RunRanksOrThrow(daemons, [](SessionOptions options) {
    std::string warning;
    options.on_warning = [&](const std::string& text) { warning = text; };
    const auto session = Session::Connect(options);
    ShardedModel model(*session, {});
    AddLayers(model, Squares(2));
    const at::Tensor old = Loss(ShardedApply(model), 2, 0);
    Loss(ShardedApply(model), 2, 0).backward();
    model.Step(PlainSgd(0.125));
    std::string raised;
    try {
      old.backward();
    } catch (const std::exception& error) {
      raised = error.what();
    }
    if (raised.find("modified by an inplace operation") == std::string::npos) {
      throw std::runtime_error("the old backward raised: " + raised);
    }
    if (warning.find("the backward of layer 'square1' failed") == std::string::npos) {
      throw std::runtime_error("the old backward warned: " + warning);
    }
    Loss(ShardedApply(model), 2, 0).backward();
    const std::vector<double> result = Values({model.ReadTensor("square0.p0", Content::kGradient)});
    session->Detach(true);
    return result;
  });
  PlainLayers plain(Squares(2));
  Loss(plain.Applier(), 2, 0).backward();
  plain.SgdStep(0.125, 1);
  Loss(plain.Applier(), 2, 0).backward();
  EXPECT_EQ(values[0], Values({2 * plain.Trainable()[0].grad()}));
}

TEST(CaseReleasedTest, ReadingAParameterOfAReleasedLayerEndsTheProcessNamingTheLayer) {
  const Daemons daemons({1});
  const ScratchFolder folder;
  const std::string errors = folder.File("stderr");
  RankProcess process(daemons.OptionsOf(0), [&](const SessionOptions& options) {
    dup2(open(errors.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    const auto session = Session::Connect(options);
    ShardedModel model(*session, {});
    at::Tensor kept;
    const auto make = [&] {
      LayerModule module =
          ModuleOf({"secret", [] { return Tensors{Filled({8}, 1)}; }, AddWeighted(1)});
      kept = module.module->parameters()[0];
      return module;
    };
    model.AddLayer("secret", make);
    model.Call(0, {Filled({}, 0)})[0].backward();
    return Values({kept.sum()});
  });
  const RankOutcome outcome = process.Wait(seconds(30));
  EXPECT_EQ(outcome.exit_code, kReleasedReadExitCode) << outcome.error;
  EXPECT_THAT(ReadWholeFile(errors), AllOf(HasSubstr("rank 0"), HasSubstr("layer 'secret'")));
}

}  // namespace
}  // namespace zerod
