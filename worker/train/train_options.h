#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/session.h"
#include "proto/contract/operation.h"

namespace zerod::train {

/// What the process was started with besides its arguments.
struct TrainEnvironment {
  SessionOptions session;  ///< rank, world, socket and job; see SessionOptions::FromEnvironment
  int64_t threads = 1;     ///< OMP_NUM_THREADS, or 1

  /// The only place of zerod-train that reads the environment. Throws Error (kInvalidArgument) that
  /// names the variable.
  static TrainEnvironment FromProcess();
};

/// All that a training run is told. Equal on all ranks, but for session.rank and the like.
struct TrainOptions {
  // Model and data
  std::string model_dir;  ///< config.json and perhaps model.safetensors
  std::string data_path;
  bool data_is_text = true;  ///< bytes; otherwise little-endian 16-bit tokens
  int64_t batch = 8;         ///< samples per step over all ranks
  int64_t seq = 128;         ///< tokens per sample
  int64_t steps = 100;       ///< to have been taken in the end, those before an attach included
  int64_t micro_batches = 1;
  std::optional<uint64_t> shuffle_seed;
  uint64_t seed = 0;  ///< of initial values and of sampling

  // Optimizer
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  double lr = 1e-3;
  int64_t warmup_steps = 0;
  double weight_decay = 0.0;
  double clip = 0.0;  ///< largest global gradient norm; 0: no clipping
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;

  // Output
  int64_t eval_every = 0;  ///< steps; 0: nothing is held out and nothing evaluated
  std::string log_path;    ///< JSON lines; empty: none
  std::optional<std::string> sample_prompt;
  int64_t sample_tokens = 200;
  double temperature = 0.8;  ///< 0: the most likely token

  // Job
  SessionOptions session;
  bool drop = false;  ///< give the job's state up at the end

  // Performance
  int64_t prefetch_depth = 1;
  bool checkpoint = false;  ///< recompute activations in the backward
  int64_t threads = 1;      ///< of LibTorch
};

struct TrainRequest {
  std::optional<std::string> text_to_print;  ///< --help and --version: print it and end
  TrainOptions options;
};

/// `arguments` without the program's name. They win over the environment. Throws Error
/// (kInvalidArgument) in one line that names the option.
TrainRequest ReadTrainOptions(const std::vector<std::string>& arguments,
                              const TrainEnvironment& environment, const std::string& version);

}  // namespace zerod::train
