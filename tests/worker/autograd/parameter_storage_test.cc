#include "worker/autograd/parameter_storage.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "worker/autograd/fault_report.h"

namespace zerod {
namespace {

// Elements 0..15 and 16..31 of a chunk are two parameters.
struct Memory {
  explicit Memory(float value) { std::fill_n(values, 32, value); }
  alignas(64) float values[32];
};

TEST(ParameterStorage, ParametersFollowTheMemoryThatIsBound) {
  ParameterStorage storage(at::kFloat, 32, "block");
  const at::Tensor weight = storage.MakeParameter(0, {4, 4}, true);
  const at::Tensor bias = storage.MakeParameter(16, {16}, false);
  Memory one(1);
  Memory two(2);
  two.values[16] = 3;
  storage.Bind(one.values);
  EXPECT_EQ(weight.sum().item().toFloat(), 16);
  storage.Unbind();
  storage.Bind(two.values);
  EXPECT_EQ(weight.sum().item().toFloat(), 32);
  EXPECT_EQ(bias[0].item().toFloat(), 3);
  EXPECT_EQ(bias.data_ptr(), two.values + 16);
  EXPECT_TRUE(weight.requires_grad() && weight.is_leaf());
  EXPECT_FALSE(bias.requires_grad());
}

TEST(ParameterStorage, SavedTensorsAndViewsOfThemFollowToo) {
  ParameterStorage storage(at::kFloat, 32, "block");
  const at::Tensor weight = storage.MakeParameter(0, {4, 4}, true);
  Memory forward(1);
  storage.Bind(forward.values);
  at::Tensor x = at::ones({2, 4});
  x.set_requires_grad(true);
  const at::Tensor y = at::matmul(x, weight.t());  // saves a view of the parameter
  storage.Unbind();
  std::fill_n(forward.values, 32, -100.0F);
  Memory backward(3);
  storage.Bind(backward.values);
  torch::autograd::backward({y.sum()});
  EXPECT_TRUE(at::equal(x.grad(), at::full({2, 4}, 12.0)));
}

TEST(ParameterStorage, ReleasedStorageHasNoBytes) {
  ParameterStorage storage(at::kFloat, 32, "block");
  const at::Tensor weight = storage.MakeParameter(0, {4, 4}, false);
  EXPECT_EQ(weight.storage().nbytes(), 0);
  Memory memory(1);
  storage.Bind(memory.values);
  EXPECT_EQ(weight.storage().nbytes(), 128);
  storage.Unbind();
  EXPECT_EQ(weight.storage().nbytes(), 0);
  EXPECT_FALSE(storage.bound());
}

using ParameterStorageDeathTest = testing::Test;

TEST(ParameterStorageDeathTest, ReadingAReleasedLayerNamesItAndEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto read_released = [] {
    InstallFaultReport(3);
    ParameterStorage storage(at::kFloat, 32, "block.7");
    const at::Tensor weight = storage.MakeParameter(16, {4, 4}, false);
    Memory memory(1);
    storage.Bind(memory.values);
    storage.Unbind();
    std::exit(static_cast<int>(weight.sum().item().toFloat()));
  };
  EXPECT_EXIT(read_released(), testing::ExitedWithCode(kReleasedReadExitCode),
              "rank 3: the parameters of layer 'block.7' were used while the layer was released");
}

TEST(ParameterStorageDeathTest, AParameterThatOutlivesItsStorageCannotBeReadEither) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto read_dead = [] {
    InstallFaultReport(0);
    at::Tensor weight;
    {
      ParameterStorage storage(at::kFloat, 32, "head");
      weight = storage.MakeParameter(0, {4, 4}, false);
    }
    std::exit(static_cast<int>(weight.sum().item().toFloat()));
  };
  EXPECT_EXIT(read_dead(), testing::ExitedWithCode(kReleasedReadExitCode), "layer 'head'");
}

TEST(ParameterStorageDeathTest, OtherFaultsEndTheProcessAsBefore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fault = [] {
    InstallFaultReport(0);
    volatile uintptr_t nowhere = 8;  // volatile: the compiler mustn't see that it is invalid
    *reinterpret_cast<volatile int*>(nowhere) = 1;
  };
  EXPECT_EXIT(fault(), testing::KilledBySignal(SIGSEGV), "");
}

}  // namespace
}  // namespace zerod
