#pragma once

#include "server/optimizer/cpu/kernel_table.h"
#include "server/optimizer/kernels.h"

namespace zerod {

/// OptimizerKernels on one table of CPU functions: checks lengths, computes scalars, calls.
class CpuKernels final : public OptimizerKernels {
 public:
  /// Borrows both; they must live for ever.
  CpuKernels(const char* name, const KernelTable& table) noexcept : name_(name), table_(table) {}

  const char* name() const noexcept override { return name_; }
  void AdamW(const AdamWTensors& tensors, const AdamWArguments& arguments) const override;
  void Sgd(const SgdTensors& tensors, const SgdArguments& arguments) const override;
  double SumInto(std::span<float> accumulator, std::span<const float* const> sources,
                 bool overwrite) const override;
  void SumTo(std::span<float> destination, std::span<const float* const> sources) const override;
  double SumOfSquares(std::span<const float> values) const override;

 private:
  const char* name_;
  const KernelTable& table_;
};

}  // namespace zerod
