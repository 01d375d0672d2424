#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "proto/contract/file_range.h"
#include "proto/contract/operation.h"
#include "worker/autograd/checkpoint.h"
#include "worker/sharded/parameter_group.h"

namespace zerod {

/// Of a sharded model; equal on all ranks.
struct ShardedOptions {
  // Behaviour
  std::vector<ParameterGroup> groups = {};

  // Performance
  /// Layers that are asked for before they are needed. 0 gathers on demand.
  int prefetch_depth = 1;
};

/// Of one layer.
struct LayerOptions {
  /// Run the forward again in the backward instead of keeping its intermediate results.
  bool checkpoint = false;
  /// Names of layers whose parameters this layer's forward reads too (tied weights that aren't
  /// registered in its module; registered ones are found).
  std::vector<std::string> uses = {};
  /// Whether the module holds its initial values. Without, the caller writes them (WriteTensor) or
  /// gives `load` or `import_from`.
  bool initialized = true;
  /// Called on the rank that provides the values, before they are uploaded, if the job is new.
  std::function<void()> load = {};
  /// Where the values of the layer's own tensors lie, in spec order, if the job is new: the daemons
  /// read them, each its own shards, and the module's values and `load` don't matter. Empty: not
  /// imported. Throws Error (kInvalidArgument) for another number of ranges than tensors.
  std::vector<FileRange> import_from = {};
};

/// A layer's module and how to run it. The module stays with the sharded model; its parameters
/// become views of gathered memory.
struct LayerModule {
  std::shared_ptr<torch::nn::Module> module;
  TensorFunction forward;
  /// Names of the module's parameters in the job, in the order of parameters(); empty: LAYER.NAME.
  std::vector<std::string> tensor_names;
};

/// Of one optimizer step.
struct StepOptions {
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double max_grad_norm = 0.0;  ///< 0: no clipping
  /// Summed gradients are divided by it; 0: dp x backwards since the last step, the mean.
  double gradient_divisor = 0.0;
  std::vector<double> values = {};  ///< at most kValuesMax, summed over all ranks, e.g. a loss
  std::string private_state = {};   ///< comes back on attach; at most 16 MiB
};

struct StepResult {
  uint64_t step = 0;     ///< steps taken, this one included
  double grad_norm = 0;  ///< global, after division, before clipping
  bool skipped = false;  ///< the norm wasn't finite: no rank updated anything
  std::vector<double> values;
};

}  // namespace zerod
