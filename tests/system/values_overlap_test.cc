// Gathers and updates go on while layers compute. Times are those of sleeps, so that a slow machine
// changes little.

#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tests/support/ranks.h"
#include "tests/system/small_model.h"

namespace zerod {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLayers = 6;
constexpr std::chrono::milliseconds kLayerTime{80};  // in forward and in backward
constexpr int kGatherDelayMs = 50;
constexpr int kUpdateDelayMs = 200;

double MsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// Identity that takes kLayerTime in both directions.
struct Slow : public torch::autograd::Function<Slow> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& input) {
    std::this_thread::sleep_for(kLayerTime);
    return input.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    std::this_thread::sleep_for(kLayerTime);
    return gradients;
  }
};

/// Square linear layers; `on_forward` is called with the layer's index when its forward begins.
void AddLayers(ShardedSequential& model, bool slow, const std::function<void(int)>& on_forward) {
  for (int layer = 0; layer < kLayers; ++layer) {
    model.AddLayer(Concat("layer", layer), [=] {
      const auto linear = FormulaLinear(kInput, kInput, layer);
      auto forward = [=](const std::vector<at::Tensor>& inputs) {
        on_forward(layer);
        const at::Tensor output = torch::nn::Linear(linear)->forward(inputs[0]);
        return std::vector<at::Tensor>{slow ? Slow::apply(output) : output};
      };
      return LayerModule{linear.ptr(), forward, {}};
    });
  }
}

at::Tensor LossOn(ShardedSequential& model, int64_t batch) {
  return model.Forward(InputBatch(batch, 2)).square().mean();
}

/// Milliseconds of the fastest of a few steps, the first of which teach the order of layers.
double StepMs(const std::vector<std::string>& arguments) {
  const Daemons daemons({1}, arguments);
  return RunRanksOrThrow(daemons, [](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedSequential model(*session, {.prefetch_depth = 1});
    AddLayers(model, true, [](int) {});
    double fastest_ms = 1e9;
    for (int step = 0; step < 4; ++step) {
      const auto begin = Clock::now();
      LossOn(model, step).backward();
      model.Step({});
      if (step > 0) fastest_ms = std::min(fastest_ms, MsSince(begin));
    }
    session->Detach(true);
    return std::vector<double>{fastest_ms};
  })[0][0];
}

TEST(OverlapTest, GathersOfTheNextLayerHideBehindTheOneThatComputes) {
  const double plain_ms = StepMs({});
  const double delayed_ms = StepMs({"--failpoints", Concat("gather_delay_ms=", kGatherDelayMs)});
  // Every layer is gathered in the forward, all but the last in the backward again.
  constexpr double kInjectedMs = (2 * kLayers - 1) * kGatherDelayMs;
  RecordProperty("plain_ms", Concat(plain_ms));
  RecordProperty("delayed_ms", Concat(delayed_ms));
  EXPECT_GE(plain_ms, 2 * kLayers * kLayerTime.count());
  EXPECT_LT(delayed_ms - plain_ms, 0.2 * kInjectedMs);
}

TEST(OverlapTest, TheNextForwardBeginsBeforeTheLastLayersUpdateEnds) {
  const Daemons daemons({1}, {"--failpoints", Concat("update_delay_ms=", kUpdateDelayMs,
                                                     ",update_delay_layer=", kLayers - 1)});
  const auto values = RunRanksOrThrow(daemons, [](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedSequential model(*session, {.prefetch_depth = 1});
    std::vector<Clock::time_point> began(kLayers);
    AddLayers(model, false, [&](int layer) { began[layer] = Clock::now(); });
    std::vector<double> times;
    for (int step = 0; step < 3; ++step) {
      LossOn(model, step).backward();
      const auto decided = Clock::now();
      model.Step({});
      const at::Tensor next = LossOn(model, step + 1);
      times.push_back(std::chrono::duration<double, std::milli>(began[0] - decided).count());
      times.push_back(
          std::chrono::duration<double, std::milli>(began[kLayers - 1] - decided).count());
    }
    session->Detach(true);
    return times;
  })[0];
  for (size_t i = 0; i < values.size(); i += 2) {
    EXPECT_LT(values[i], 0.75 * kUpdateDelayMs) << "layer 0 waited for the last layer's update";
    EXPECT_GE(values[i + 1], kUpdateDelayMs) << "the last layer's forward didn't wait";
  }
}

}  // namespace
}  // namespace zerod
