// Random programs over layers in few slots, against the same program on ordinary tensors.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/worker/autograd/layer_pool.h"

namespace zerod {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr uint32_t kSeeds = 100;
constexpr int64_t kWidth = 6;
constexpr size_t kWeight = 0;
constexpr size_t kBias = 1;
constexpr size_t kScale = 2;

enum class Kind { kLinear, kTwice, kOnlyBias, kTwoInputs, kTwoOutputs, kInPlace, kResidual };
constexpr int kKinds = 7;

// One call of a layer, decided before it runs: a checkpointed body runs twice.
struct Block {
  size_t layer = 0;
  Kind kind = Kind::kLinear;
  std::optional<size_t> tied;    // another layer, whose weight it uses too
  std::shared_ptr<Block> inner;  // called from inside
  bool checkpointed = false;
  bool dropout = false;
};

// The first to touch the input is the innermost block.
bool UsesInputTwice(const Block& block) {
  if (block.inner) return UsesInputTwice(*block.inner);
  return block.kind == Kind::kResidual && !block.tied && !block.dropout;
}

// What a program runs on.
class Model {
 public:
  virtual ~Model() = default;
  virtual at::Tensor parameter(size_t layer, size_t index) const = 0;
  virtual Tensors Call(const Block& block, const Tensors& inputs) = 0;

 protected:
  Tensors Compute(const Block& block, const Tensors& inputs);
};

Tensors Model::Compute(const Block& block, const Tensors& inputs) {
  const at::Tensor weight = parameter(block.layer, kWeight);
  const at::Tensor bias = parameter(block.layer, kBias);
  const at::Tensor scale = parameter(block.layer, kScale);
  at::Tensor x = inputs[0];
  if (block.inner) x = Call(*block.inner, {x})[0];
  if (block.tied) x = at::linear(x, parameter(*block.tied, kWeight));
  if (block.dropout) x = at::dropout(x, 0.3, /*train=*/true);
  switch (block.kind) {
    case Kind::kLinear:
      return {at::tanh(at::linear(x, weight, bias))};
    case Kind::kTwice:
      return {at::linear(at::tanh(at::linear(x, weight)), weight, bias)};
    case Kind::kOnlyBias:
      return {at::sigmoid(x + bias)};
    case Kind::kTwoInputs:
      return {at::tanh(at::matmul(x, weight)) + inputs.back() * scale};
    case Kind::kTwoOutputs: {
      const at::Tensor hidden = at::linear(x, weight);
      return {at::tanh(hidden), hidden * scale};
    }
    case Kind::kInPlace: {
      at::Tensor hidden = at::linear(x, weight, bias);
      hidden.mul_(scale);
      return {hidden.t().contiguous().t()};
    }
    case Kind::kResidual:
      return {x + at::gelu(at::linear(x, weight, bias))};
  }
  return {};
}

class PlainModel : public Model {
 public:
  explicit PlainModel(std::vector<Tensors> values) : parameters_(std::move(values)) {}
  at::Tensor parameter(size_t layer, size_t index) const override {
    return parameters_[layer][index];
  }
  Tensors Call(const Block& block, const Tensors& inputs) override {
    return Compute(block, inputs);
  }

 private:
  std::vector<Tensors> parameters_;
};

class PooledModel : public Model {
 public:
  explicit PooledModel(const std::vector<Tensors>& values) {
    for (const Tensors& layer : values) pool_.AddLayer(layer);
  }
  at::Tensor parameter(size_t layer, size_t index) const override {
    return pool_.parameter(layer, index);
  }
  Tensors Call(const Block& block, const Tensors& inputs) override {
    std::vector<size_t> layers{block.layer};
    if (block.tied) layers.push_back(*block.tied);
    return pool_.Call(
        layers, [this, block](const Tensors& tensors) { return Compute(block, tensors); }, inputs,
        block.checkpointed);
  }
  LayerPool& pool() { return pool_; }

 private:
  LayerPool pool_;
};

// Makes the same decisions for every model: they depend on the seed only. A strict program uses
// every value and every parameter at most twice, so that no sum depends on its order.
class Program {
 public:
  Program(uint32_t seed, bool strict) : random_(seed), seed_(seed), strict_(strict) {
    layer_count_ = 3 + Pick(6);
  }

  std::vector<Tensors> MakeParameters();
  void Run(Model& model);
  const Tensors& input_gradients() const { return input_gradients_; }

 private:
  struct Value {
    at::Tensor tensor;
    int uses = 0;
  };

  size_t Pick(size_t count) { return random_() % count; }
  bool Chance(int percent) { return static_cast<int>(Pick(100)) < percent; }
  bool TakeLayer(size_t layer, int uses);
  size_t TakeValue();
  std::optional<Block> MakeBlock(bool inner);
  at::Tensor Forward(Model& model);
  void Backward(const at::Tensor& loss, bool keep_graph);

  std::mt19937 random_;
  uint32_t seed_;
  bool strict_;
  size_t layer_count_ = 0;
  std::vector<int> layer_uses_;
  std::vector<Value> values_;
  Tensors leaf_inputs_;
  Tensors input_gradients_;
};

std::vector<Tensors> Program::MakeParameters() {
  at::manual_seed(seed_);
  std::vector<Tensors> layers(layer_count_);
  const bool any_frozen = Chance(50);
  for (Tensors& layer : layers) {
    layer = {at::randn({kWidth, kWidth}) * 0.4, at::randn({kWidth}) * 0.3,
             at::randn({kWidth}) * 0.5 + 1.0};
    const bool all_frozen = any_frozen && Chance(25);
    for (at::Tensor& parameter : layer) {
      parameter.set_requires_grad(!all_frozen && !(any_frozen && Chance(25)));
    }
  }
  return layers;
}

bool Program::TakeLayer(size_t layer, int uses) {
  if (strict_ && layer_uses_[layer] + uses > 2) return false;
  layer_uses_[layer] += uses;
  return true;
}

size_t Program::TakeValue() {
  // Mostly the newest, so that programs become deep.
  size_t index = Chance(60) ? values_.size() - 1 : Pick(values_.size());
  while (strict_ && values_[index].uses > 1 && index > 0) --index;
  if (strict_ && values_[index].uses > 1) {
    index = values_.size();
    values_.push_back({at::randn({4, kWidth})});
  }
  ++values_[index].uses;
  return index;
}

std::optional<Block> Program::MakeBlock(bool inner) {
  Block block;
  block.layer = Pick(layer_count_);
  block.kind = static_cast<Kind>(Pick(kKinds));
  if (inner && block.kind == Kind::kTwoInputs) block.kind = Kind::kLinear;
  if (!TakeLayer(block.layer, block.kind == Kind::kTwice ? 2 : 1)) return std::nullopt;
  block.checkpointed = Chance(25);
  block.dropout = Chance(20);
  const size_t tied = Pick(layer_count_);
  if (tied != block.layer && Chance(20) && TakeLayer(tied, 1)) block.tied = tied;
  if (!inner && Chance(25)) {
    if (const std::optional<Block> nested = MakeBlock(true)) {
      block.inner = std::make_shared<Block>(*nested);
    }
  }
  return block;
}

at::Tensor Program::Forward(Model& model) {
  values_.clear();
  for (int i = 0; i < 2; ++i) {
    at::Tensor input = at::randn({4, kWidth});
    input.set_requires_grad(Chance(i == 0 ? 20 : 60));
    leaf_inputs_.push_back(input);
    values_.push_back({input});
  }
  const size_t calls = layer_count_ + Pick(layer_count_);
  for (size_t i = 0; i < calls; ++i) {
    const std::optional<Block> block = MakeBlock(false);
    if (!block) continue;
    Value& first = values_[TakeValue()];
    if (UsesInputTwice(*block)) {
      if (strict_ && first.uses > 1) continue;
      first.uses = 2;
    }
    Tensors inputs{first.tensor};
    if (block->kind == Kind::kTwoInputs) inputs.push_back(values_[TakeValue()].tensor);
    for (const at::Tensor& output : model.Call(*block, inputs)) {
      if (!Chance(10)) values_.push_back({output});
    }
  }
  at::Tensor loss = at::zeros({});
  const size_t terms = 1 + Pick(3);
  for (size_t i = 0; i < terms; ++i) {
    loss = loss + (values_[TakeValue()].tensor * at::randn({4, kWidth})).sum();
  }
  return loss;
}

void Program::Backward(const at::Tensor& loss, bool keep_graph) {
  if (!loss.requires_grad()) return;
  torch::autograd::backward({loss}, {}, keep_graph);
}

void Program::Run(Model& model) {
  at::manual_seed(seed_ + 1);
  const size_t micro_batches = 1 + Pick(3);
  const bool forwards_first = Chance(50);
  Tensors losses;
  for (size_t i = 0; i < micro_batches; ++i) {
    layer_uses_.assign(layer_count_, 0);
    at::Tensor loss = Forward(model);
    if (forwards_first) {
      losses.push_back(loss);
    } else {
      Backward(loss, false);
    }
  }
  if (Chance(30)) std::reverse(losses.begin(), losses.end());
  if (losses.size() > 1 && Chance(30)) losses.pop_back();  // a graph that is dropped
  for (const at::Tensor& loss : losses) {
    const bool twice = Chance(20);
    if (twice) Backward(loss, true);
    Backward(loss, false);
  }
  for (const at::Tensor& input : leaf_inputs_) input_gradients_.push_back(input.grad());
}

void ExpectSame(const at::Tensor& actual, const at::Tensor& expected, bool exact) {
  ASSERT_EQ(actual.defined(), expected.defined());
  if (!expected.defined()) return;
  if (exact) {
    EXPECT_TRUE(at::equal(actual, expected)) << "difference " << (actual - expected).abs().max();
    return;
  }
  const double scale = expected.norm().item<double>();
  EXPECT_LE((actual - expected).norm().item<double>(), 1e-6 * scale + 1e-7);
}

void CompareProgram(uint32_t seed, bool strict) {
  SCOPED_TRACE("seed " + std::to_string(seed) + (strict ? " strict" : ""));
  at::set_num_threads(1);  // the tensors are tiny
  Program plain_program(seed, strict);
  std::vector<Tensors> values = plain_program.MakeParameters();
  Program pooled_program(seed, strict);
  PooledModel pooled(pooled_program.MakeParameters());
  PlainModel plain(values);
  plain_program.Run(plain);
  pooled_program.Run(pooled);
  LayerPool& pool = pooled.pool();
  EXPECT_EQ(pool.held_layers(), 0);
  EXPECT_EQ(pool.failed(), 0);
  for (size_t layer = 0; layer < values.size(); ++layer) {
    for (size_t i = 0; i < values[layer].size(); ++i) {
      SCOPED_TRACE("layer " + std::to_string(layer) + " parameter " + std::to_string(i));
      ExpectSame(pool.reduced(layer, i), values[layer][i].grad(), strict);
    }
  }
  for (size_t i = 0; i < plain_program.input_gradients().size(); ++i) {
    SCOPED_TRACE("input " + std::to_string(i));
    ExpectSame(pooled_program.input_gradients()[i], plain_program.input_gradients()[i], strict);
  }
}

TEST(RandomGraph, GivesThePlainGradientsToTheBitWhereNoSumDependsOnItsOrder) {
  for (uint32_t seed = 0; seed < kSeeds && !HasFailure(); ++seed) CompareProgram(seed, true);
}

TEST(RandomGraph, GivesThePlainGradientsWhereLayersAreUsedOften) {
  for (uint32_t seed = 0; seed < kSeeds && !HasFailure(); ++seed) CompareProgram(seed, false);
}

}  // namespace
}  // namespace zerod
