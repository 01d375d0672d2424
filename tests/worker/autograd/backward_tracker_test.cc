#include "worker/autograd/backward_tracker.h"

#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "proto/contract/error.h"
#include "tests/worker/autograd/layer_pool.h"
#include "worker/autograd/layer_call.h"

namespace zerod {
namespace {

using Tensors = std::vector<at::Tensor>;
using Layers = std::vector<size_t>;

at::Tensor Scalar(float value, bool trainable = true) {
  at::Tensor tensor = at::full({1}, value);
  tensor.set_requires_grad(trainable);
  return tensor;
}

float Value(const at::Tensor& tensor) { return tensor.item().toFloat(); }

void Backward(const at::Tensor& loss, bool keep_graph = false) {
  torch::autograd::backward({loss.sum()}, {}, keep_graph);
}

// Each layer is a factor: y = w·x.
class BackwardTrackerTest : public testing::Test {
 protected:
  at::Tensor Weight(size_t layer, size_t index = 0) const { return pool.parameter(layer, index); }
  at::Tensor Times(size_t layer, const at::Tensor& x, bool checkpointed = false) {
    return pool.CallOne(
        layer, [this, layer](const at::Tensor& input) { return input * Weight(layer); }, x,
        checkpointed);
  }
  float Reduced(size_t layer, size_t index = 0) const { return Value(pool.reduced(layer, index)); }

  LayerPool pool;
};

TEST_F(BackwardTrackerTest, ALayerAppliedTwiceCollectsBothUsesInOneReduce) {
  pool.AddLayer({Scalar(2)});
  const at::Tensor y = pool.CallOne(
      0, [this](const at::Tensor& x) { return Weight(0) * (Weight(0) * x); }, Scalar(1, false));
  Backward(y);
  EXPECT_EQ(Reduced(0), 4);  // d(w·w·x)/dw = 2wx
  EXPECT_EQ(pool.completions(0), 1);
}

TEST_F(BackwardTrackerTest, ALayerCalledTwiceIsReducedOnce) {
  pool.AddLayer({Scalar(2)});
  Backward(Times(0, Times(0, Scalar(1, false))));
  EXPECT_EQ(Reduced(0), 4);
  EXPECT_EQ(pool.completions(0), 1);
  EXPECT_EQ(pool.begun(), (Layers{0, 0}));
  EXPECT_EQ(pool.held_layers(), 0);
}

TEST_F(BackwardTrackerTest, ALossMadeInsideALayerKeepsItUntilItsBackwardIsThrough) {
  pool.AddLayer({Scalar(2)});
  pool.AddLayer({Scalar(3)});
  const at::Tensor loss = pool.CallOne(
      1, [this](const at::Tensor& x) { return (x * Weight(1) * Weight(1)).sum(); },
      Times(0, Scalar(5, false)));
  torch::autograd::backward({loss});
  EXPECT_EQ(Reduced(1), 60);  // d(v²·w·x)/dv = 2vwx
  EXPECT_EQ(Reduced(0), 45);  // v²x
  EXPECT_EQ(pool.begun(), (Layers{1, 0}));
  EXPECT_EQ(pool.held_layers(), 0);
}

TEST_F(BackwardTrackerTest, ATiedWeightIsReducedOnceAtItsOwner) {
  pool.AddLayer({Scalar(3)});
  pool.AddLayer({Scalar(5)});
  const at::Tensor embedded = Times(0, Scalar(2, false));
  // The head uses the embedding's weight and its own.
  const at::Tensor y =
      pool.Call({1, 0}, [this](const Tensors& x) { return Tensors{x[0] * Weight(1) * Weight(0)}; },
                {embedded})[0];
  Backward(y);
  EXPECT_EQ(Reduced(0), 60);  // d(w²·v·x)/dw = 2wvx
  EXPECT_EQ(Reduced(1), 18);  // w²x
  EXPECT_EQ(pool.completions(0), 1);
}

TEST_F(BackwardTrackerTest, AnUnusedParameterGetsNoGradientAndHoldsUpNothing) {
  pool.AddLayer({Scalar(2), Scalar(7)});
  Backward(Times(0, Scalar(3, false)));
  EXPECT_EQ(Reduced(0, 0), 3);
  EXPECT_FALSE(pool.reduced(0, 1).defined());
  EXPECT_EQ(pool.completions(0), 1);
}

TEST_F(BackwardTrackerTest, AnUnusedOutputHoldsUpNothing) {
  pool.AddLayer({Scalar(2), Scalar(7)});
  const Tensors outputs = pool.Call({0},
                                    [this](const Tensors& x) {
                                      return Tensors{x[0] * Weight(0, 0), x[0] * Weight(0, 1)};
                                    },
                                    {Scalar(3, false)});
  Backward(outputs[1]);
  EXPECT_FALSE(pool.reduced(0, 0).defined());
  EXPECT_EQ(Reduced(0, 1), 3);
  EXPECT_EQ(pool.begun(), Layers{0});
  EXPECT_EQ(pool.held_layers(), 0);
}

TEST_F(BackwardTrackerTest, TwoForwardsBeforeTheirBackwardsAreTwoReduces) {
  pool.AddLayer({Scalar(2)});
  pool.AddLayer({Scalar(5)});
  const at::Tensor first = Times(1, Times(0, Scalar(1, false)));
  const at::Tensor second = Times(1, Times(0, Scalar(10, false)));
  Backward(first);
  EXPECT_EQ(Reduced(0), 5);
  Backward(second);
  EXPECT_EQ(Reduced(0), 55);
  EXPECT_EQ(Reduced(1), 22);
  EXPECT_EQ(pool.completions(0), 2);
}

TEST_F(BackwardTrackerTest, ASkippedLayerIsNeitherHeldNorReduced) {
  for (float weight : {2, 3, 5}) pool.AddLayer({Scalar(weight)});
  Backward(Times(2, Times(0, Scalar(1, false))));
  EXPECT_EQ(pool.begun(), (Layers{2, 0}));
  EXPECT_EQ(pool.completions(1), 0);
  EXPECT_EQ(pool.most_held_layers(), 1);
}

TEST_F(BackwardTrackerTest, ACallInsideACallHoldsBoth) {
  pool.AddLayer({Scalar(2)});
  pool.AddLayer({Scalar(3)});
  const at::Tensor y = pool.CallOne(
      0, [this](const at::Tensor& x) { return Times(1, x * Weight(0)) * Weight(0); },
      Scalar(1, false));
  Backward(y);
  EXPECT_EQ(Reduced(0), 12);  // d(w²·v·x)/dw
  EXPECT_EQ(Reduced(1), 4);
  EXPECT_EQ(pool.most_held_layers(), 2);
  EXPECT_EQ(pool.held_layers(), 0);
}

TEST_F(BackwardTrackerTest, FrozenLayersPassGradientsOnAndGetNone) {
  pool.AddLayer({Scalar(2, false)});
  pool.AddLayer({Scalar(3)});
  pool.AddLayer({Scalar(5, false)});
  Backward(Times(2, Times(1, Times(0, Scalar(1, false)))));
  EXPECT_EQ(Reduced(1), 10);
  // The input needs no gradient, so nothing before layer 1 runs backward.
  EXPECT_EQ(pool.begun(), (Layers{2, 1}));
  EXPECT_EQ(pool.completions(0) + pool.completions(2), 0);
}

TEST_F(BackwardTrackerTest, CheckpointedLayersAreHeldOncePerCall) {
  pool.AddLayer({Scalar(2)});
  pool.AddLayer({Scalar(3, false)});
  pool.AddLayer({Scalar(5)});
  Backward(Times(2, Times(1, Times(0, Scalar(1, false), true), true), true));
  EXPECT_EQ(Reduced(0), 15);
  EXPECT_EQ(Reduced(2), 6);
  EXPECT_EQ(pool.begun(), (Layers{2, 1, 0}));
  EXPECT_EQ(pool.completions(0), 1);
  EXPECT_EQ(pool.most_held_layers(), 1);
}

TEST_F(BackwardTrackerTest, ALayerUsedInsideAndOutsideACheckpointIsReducedOnce) {
  pool.AddLayer({Scalar(2)});
  Backward(Times(0, Times(0, Times(0, Scalar(1, false), true)), true));
  EXPECT_EQ(Reduced(0), 12);  // 3w²
  EXPECT_EQ(pool.completions(0), 1);
}

TEST_F(BackwardTrackerTest, ABackwardThatThrowsLeavesNothingBehind) {
  for (float weight : {2, 3, 5}) pool.AddLayer({Scalar(weight)});
  pool.on_gradient = [](size_t layer, size_t) {
    if (layer == 1) throw Error(ErrorCode::kAborted, "the epoch ended");
  };
  const at::Tensor broken = Times(2, Times(1, Times(0, Scalar(1, false))));
  try {
    Backward(broken);
    FAIL() << "the error was swallowed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kAborted);
  }
  EXPECT_EQ(pool.failed(), 1);
  EXPECT_EQ(pool.held_layers(), 0);
  EXPECT_FALSE(Weight(1).grad().defined());
  pool.on_gradient = nullptr;
  Backward(Times(1, Times(0, Scalar(1, false))));
  EXPECT_EQ(Reduced(0), 3);
  EXPECT_EQ(Reduced(1), 2);
  EXPECT_EQ(pool.finished(), 1);
}

TEST_F(BackwardTrackerTest, ABackwardThatThrowsInALayerSaysInWhich) {
  for (float weight : {2, 3, 5}) pool.AddLayer({Scalar(weight)});
  for (const bool checkpointed : {false, true}) {
    const at::Tensor h = Times(0, Scalar(1, false));
    const at::Tensor y = Times(2, Times(1, h, checkpointed));
    {
      const c10::NoGradGuard no_grad;
      h.add_(1);  // which layer 1 saved
    }
    EXPECT_THROW(Backward(y), c10::Error);
    EXPECT_EQ(pool.failed_layer(), 1U);
    const at::Tensor between = Times(0, Scalar(1, false));
    const at::Tensor z = Times(1, between * between, checkpointed);
    {
      const c10::NoGradGuard no_grad;
      between.add_(1);
    }
    EXPECT_THROW(Backward(z), c10::Error);
    EXPECT_EQ(pool.failed_layer(), std::nullopt);
  }
}

TEST_F(BackwardTrackerTest, AThrowInsideACheckpointEndsTheOuterBackwardToo) {
  pool.AddLayer({Scalar(2)});
  pool.AddLayer({Scalar(3)});
  const at::Tensor y = Times(1, Times(0, Scalar(1, false), true));
  pool.on_gradient = [](size_t layer, size_t) {
    if (layer == 0) throw Error(ErrorCode::kUnavailable, "no daemon");
  };
  EXPECT_THROW(Backward(y), Error);
  EXPECT_EQ(pool.failed(), 1);
  EXPECT_EQ(pool.held_layers(), 0);
  EXPECT_EQ(Reduced(1), 2);  // complete before the failure
}

TEST_F(BackwardTrackerTest, GradWithInputsCollectsNothingAndHoldsWhatItRuns) {
  pool.AddLayer({Scalar(2)});
  pool.AddLayer({Scalar(3)});
  for (bool checkpointed : {false, true}) {
    const at::Tensor x = Scalar(1);
    const at::Tensor y = Times(1, Times(0, x, checkpointed), checkpointed);
    const Tensors gradients = torch::autograd::grad({y.sum()}, {x, Weight(0)});
    EXPECT_EQ(Value(gradients[0]), 6);
    EXPECT_EQ(Value(gradients[1]), 3);
    EXPECT_FALSE(x.grad().defined());
  }
  EXPECT_EQ(pool.completions(0) + pool.completions(1), 0);
  EXPECT_EQ(pool.begun(), (Layers{1, 0, 1, 0}));
  EXPECT_EQ(pool.held_layers(), 0);
}

TEST_F(BackwardTrackerTest, BackwardWithInputsCollectsOnlyThose) {
  pool.AddLayer({Scalar(2)});
  pool.AddLayer({Scalar(3)});
  for (bool checkpointed : {false, true}) {
    const at::Tensor y = Times(1, Times(0, Scalar(1), checkpointed), checkpointed);
    torch::autograd::backward({y.sum()}, {}, std::nullopt, false, {Weight(0)});
  }
  EXPECT_EQ(Reduced(0), 6);
  EXPECT_EQ(pool.completions(0), 2);
  EXPECT_EQ(pool.completions(1), 0);
}

TEST_F(BackwardTrackerTest, AGraphThatIsKeptRunsTwice) {
  pool.AddLayer({Scalar(2)});
  const at::Tensor y = Times(0, Times(0, Scalar(1, false), true));
  Backward(y, /*keep_graph=*/true);
  Backward(y);
  EXPECT_EQ(Reduced(0), 8);
  EXPECT_EQ(pool.completions(0), 2);
  EXPECT_EQ(pool.finished(), 2);
}

TEST_F(BackwardTrackerTest, WithoutGradientsNothingIsAttached) {
  pool.AddLayer({Scalar(2)});
  const c10::AutoGradMode no_grad(false);
  const at::Tensor y = Times(0, Scalar(3, false), /*checkpointed=*/true);
  EXPECT_EQ(Value(y), 6);
  EXPECT_FALSE(y.requires_grad());
}

TEST(BackwardTracker, ItsGraphsMayOutliveIt) {
  at::Tensor y;
  const at::Tensor x = Scalar(1);
  {
    LayerPool pool;
    pool.AddLayer({Scalar(2)});
    // A sum saves no parameter, so its backward may still run.
    y = pool.CallOne(
        0, [&pool](const at::Tensor& input) { return input + pool.parameter(0, 0); }, x);
  }
  Backward(y);
  EXPECT_EQ(Value(x.grad()), 1);
}

TEST(Checkpoint, RepeatsTheDrawsOfDropoutAndGoesOnAfterThem) {
  LayerPool pool;
  pool.AddLayer({at::ones({1000}).set_requires_grad(true)});
  at::manual_seed(1);
  const auto dropped = [&pool](const at::Tensor& x) {
    return at::dropout(x * pool.parameter(0, 0), 0.5, /*train=*/true);
  };
  const at::Tensor y = pool.CallOne(0, dropped, at::ones({1000}), /*checkpointed=*/true);
  const at::Tensor expected_next =
      at::rand({8}, at::globalContext().defaultGenerator(at::kCPU).clone());
  Backward(y);
  EXPECT_TRUE(at::equal(pool.reduced(0, 0), y.detach()));  // w and x are 1
  EXPECT_TRUE(at::equal(at::rand({8}), expected_next));
}

TEST(Checkpoint, ABackwardAfterAStepThrowsAsWithoutACheckpoint) {
  LayerPool pool;
  pool.AddLayer({Scalar(2)});
  for (bool checkpointed : {false, true}) {
    const at::Tensor y = pool.CallOne(
        0, [&pool](const at::Tensor& x) { return x * pool.parameter(0, 0); }, Scalar(1),
        checkpointed);
    pool.parameter(0, 0).unsafeGetTensorImpl()->bump_version();
    EXPECT_THROW(Backward(y), c10::Error);
  }
}

}  // namespace
}  // namespace zerod
