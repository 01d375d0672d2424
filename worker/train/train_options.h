#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/session.h"
#include "proto/contract/operation.h"
#include "worker/train/parameter_rules.h"
#include "worker/train/schedule.h"

namespace zerod::train {

/// What the process was started with besides its arguments.
struct TrainEnvironment {
  SessionOptions session;  ///< rank, world, socket and job; see SessionOptions::FromEnvironment
  int64_t threads = 1;     ///< OMP_NUM_THREADS, or 1

  /// The only place of zerod-train that reads the environment. Throws Error (kInvalidArgument) that
  /// names the variable.
  static TrainEnvironment FromProcess();
};

/// What the model is to write at the end.
struct TextOptions {
  std::optional<std::string> prompt;  ///< none: nothing, unless there are ids
  std::vector<int64_t> ids;           ///< the prompt as token ids
  int64_t tokens = 200;
  double temperature = 0.8;     ///< 0: the most likely token
  int64_t top_k = 0;            ///< among this many most likely ones; 0: all
  double top_p = 1.0;           ///< among the fewest that have this probability together
  std::string vocabulary_path;  ///< bytes of each token (deploy/tokenize.py); or empty
};

/// All that a training run is told. Equal on all ranks, but for session.rank and the like.
struct TrainOptions {
  // Model and data
  std::string model_dir;  ///< config.json and perhaps weights
  std::string data_path;
  std::string eval_path;     ///< of the same kind, evaluated instead of the last tenth; or empty
  bool data_is_text = true;  ///< bytes; otherwise little-endian tokens
  int token_bytes = 0;       ///< 2 or 4; 0: what the file's description or the vocabulary says
  std::optional<int64_t> document_end;  ///< token behind each document; none: the description's
  bool mask_documents = false;          ///< what follows that token isn't asked of the model
  int64_t batch = 8;                    ///< samples per step over all ranks
  int64_t seq = 128;                    ///< tokens per sample
  int64_t steps = 100;           ///< to have been taken in the end, those before an attach included
  std::optional<double> epochs;  ///< passes over the data, in place of steps
  int64_t micro_batches = 1;
  std::optional<uint64_t> shuffle_seed;
  uint64_t seed = 0;  ///< of initial values, dropout and sampling

  // Optimizer
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  double lr = 1e-3;
  int64_t warmup_steps = 0;
  Decay decay = Decay::kConstant;
  double min_lr = 0.0;
  int64_t decay_steps = 0;  ///< where the fall ends; 0: with the last step
  double weight_decay = 0.0;
  double clip = 0.0;  ///< largest global gradient norm; 0: no clipping
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  ParameterRules rules;
  DType dtype = DType::kFloat32;  ///< of the parameters; masters are float32

  // Output
  int64_t eval_every = 0;             ///< steps; 0: only at the end, if there is an eval_path
  std::string log_path;               ///< JSON lines; empty: none
  std::string export_dir;             ///< a checkpoint is written there in the end; empty: none
  std::optional<DType> export_dtype;  ///< none: that of the imported weights
  TextOptions sample;

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
