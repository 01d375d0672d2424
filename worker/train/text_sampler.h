#pragma once

#include <cstdint>
#include <string>

#include "worker/sharded/sharded_sequential.h"

namespace zerod::train {

struct SampleOptions {
  std::string prompt;
  int64_t tokens = 200;
  double temperature = 0.8;  ///< 0: always the most likely token
  uint64_t seed = 0;
  int64_t context = 128;  ///< tokens that the model looks back at
};

/// Lets a model over bytes continue a prompt (an empty one counts as a line's end); returns both as
/// bytes. The model's layers are gathered for every byte, so all ranks call it alike; all return
/// the same if they compute alike.
std::string SampleText(const SampleOptions& options, ShardedSequential& model);

}  // namespace zerod::train
