#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/neox/config.h"
#include "worker/neox/forward_context.h"
#include "worker/sharded/sharded_sequential.h"

namespace zerod::train {

struct SampleOptions {
  int64_t tokens = 200;      ///< at most so many new ones
  double temperature = 0.8;  ///< 0: always the most likely token
  int64_t top_k = 0;         ///< draw among the k most likely only; 0: among all
  double top_p = 1.0;        ///< draw among the fewest that have this probability together
  uint64_t seed = 0;
  /// Tokens that the model looks back at, at most its max_position_embeddings (which 0 stands for).
  /// When they are full, the older half is forgotten.
  int64_t context = 0;
  int64_t vocabulary =
      0;  ///< ids from here on are never drawn (a padded vocabulary); 0: all may be
  std::optional<int64_t> end_token = std::nullopt;  ///< ends the text; not part of the result
};

/// What runs the model for the sampler.
struct SampleModel {
  const neox::Config& config;
  neox::ForwardContext& forward;  ///< the one that the model's layers share
  /// Token ids [1, T] -> logits of the last, [1, 1, V].
  std::function<at::Tensor(const at::Tensor&)> run;
  /// Rank 0's choice (-1: none can be made), given this rank's.
  std::function<int64_t(int64_t)> agree;
};

/// A sharded model. The layers are gathered for every token, so all ranks call SampleTokens alike;
/// rank 0 draws, so that all return the same. The references outlive the result.
SampleModel SampleModelOf(const neox::Config& config, neox::ForwardContext& forward,
                          ShardedSequential& model);

/// Throws Error (kInvalidArgument) for an empty prompt and ids outside the model's vocabulary, so
/// that they can be refused before the model is trained.
void CheckPrompt(const std::vector<int64_t>& prompt, const neox::Config& config);

/// Lets a model continue a prompt (token ids, at least one); returns the new ids. Each new token
/// costs the forward of one position: keys and values of earlier ones are kept. Leaves
/// model.forward at evaluation. Throws Error: kInvalidArgument for options out of range and ids
/// outside the model's vocabulary; kDataLoss, on all ranks, if rank 0's logits aren't all finite.
std::vector<int64_t> SampleTokens(const std::vector<int64_t>& prompt, const SampleOptions& options,
                                  const SampleModel& model);

/// The bytes of `ids` in sequence. `vocabulary[id]` are those of an id (Vocabulary::tokens); ids
/// beyond it become "<id>" with the number.
std::string DecodeTokens(const std::vector<int64_t>& ids,
                         const std::vector<std::string>& vocabulary);

}  // namespace zerod::train
