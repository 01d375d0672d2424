#include "tests/system/values_reader.h"

#include <algorithm>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace zerod {
namespace {

/// Ranks are forked from the test's process, and threads of LibTorch wouldn't survive that.
class SingleThread : public ::testing::Environment {
 public:
  void SetUp() override { at::set_num_threads(1); }
};

const ::testing::Environment* const kSingleThread =
    ::testing::AddGlobalTestEnvironment(new SingleThread);

}  // namespace

double ValueReader::Next() { return values_.at(at_++); }

at::Tensor ValueReader::Next(at::IntArrayRef sizes) {
  const at::Tensor tensor = at::empty(sizes, at::kDouble);
  double* out = tensor.data_ptr<double>();
  for (int64_t i = 0; i < tensor.numel(); ++i) out[i] = Next();
  return tensor;
}

std::vector<float> ValueReader::NextFloats(size_t numel) {
  std::vector<float> floats(numel);
  std::ranges::generate(floats, [this] { return static_cast<float>(Next()); });
  return floats;
}

double RelativeL2(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor reference = expected.detach().to(at::kDouble);
  const double difference = actual.detach().to(at::kDouble).sub(reference).norm().item<double>();
  return difference == 0 ? 0 : difference / reference.norm().item<double>();
}

}  // namespace zerod
