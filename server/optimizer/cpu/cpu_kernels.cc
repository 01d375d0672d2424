#include "server/optimizer/cpu/cpu_kernels.h"

#include "proto/contract/error.h"

namespace zerod {

void CpuKernels::AdamW(const AdamWTensors& tensors, const AdamWArguments& arguments) const {
  const std::size_t numel = tensors.parameter.size();
  ZEROD_CHECK(tensors.exp_avg.size() == numel && tensors.exp_avg_sq.size() == numel &&
                  tensors.gradient.size() == numel,
              "parameter ", numel, ", exp_avg ", tensors.exp_avg.size(), ", exp_avg_sq ",
              tensors.exp_avg_sq.size(), ", gradient ", tensors.gradient.size());
  ZEROD_CHECK(tensors.bf16_parameter.empty() || tensors.bf16_parameter.size() == numel,
              "parameter ", numel, ", bf16 parameter ", tensors.bf16_parameter.size());
  table_.adamw(
      {.parameter = tensors.parameter.data(),
       .exp_avg = tensors.exp_avg.data(),
       .exp_avg_sq = tensors.exp_avg_sq.data(),
       .gradient = tensors.gradient.data(),
       .bf16_parameter = tensors.bf16_parameter.empty() ? nullptr : tensors.bf16_parameter.data(),
       .numel = numel},
      ComputeAdamWScalars(arguments));
}

void CpuKernels::Sgd(const SgdTensors& tensors, const SgdArguments& arguments) const {
  const std::size_t numel = tensors.parameter.size();
  ZEROD_CHECK(tensors.gradient.size() == numel, "parameter ", numel, ", gradient ",
              tensors.gradient.size());
  ZEROD_CHECK(tensors.bf16_parameter.empty() || tensors.bf16_parameter.size() == numel,
              "parameter ", numel, ", bf16 parameter ", tensors.bf16_parameter.size());
  table_.sgd(
      {.parameter = tensors.parameter.data(),
       .gradient = tensors.gradient.data(),
       .bf16_parameter = tensors.bf16_parameter.empty() ? nullptr : tensors.bf16_parameter.data(),
       .numel = numel},
      {.gradient_factor = static_cast<float>(arguments.gradient_factor),
       .weight_decay = static_cast<float>(arguments.weight_decay),
       .negative_learning_rate = static_cast<float>(-arguments.learning_rate)});
}

double CpuKernels::SumInto(std::span<float> accumulator, std::span<const float* const> sources,
                           bool overwrite) const {
  ZEROD_CHECK(!sources.empty(), "nothing to sum");
  return table_.sum_into(accumulator.data(), {sources.data(), sources.size(), accumulator.size()},
                         overwrite);
}

void CpuKernels::SumTo(std::span<float> destination, std::span<const float* const> sources) const {
  ZEROD_CHECK(!sources.empty(), "nothing to sum");
  table_.sum_to(destination.data(), {sources.data(), sources.size(), destination.size()});
}

double CpuKernels::SumOfSquares(std::span<const float> values) const {
  return table_.sum_of_squares(values.data(), values.size());
}

}  // namespace zerod
