#pragma once

#include <cstdint>
#include <random>
#include <span>

namespace zerod::train {

/// How the next token is chosen.
struct DrawOptions {
  double temperature = 1.0;  ///< 0: always the most likely
  int64_t top_k = 0;         ///< among the k most likely; 0: all
  double top_p = 1.0;        ///< then among the fewest that have this probability together
};

/// Draws from finite logits an index with probability proportional to exp(logit / temperature),
/// among those that the options leave; of equal logits the lower index counts as more likely. Uses
/// one value of `random` unless the temperature is 0, and depends on nothing else: the
/// distributions of <random> differ between libraries.
int64_t DrawToken(std::span<const float> logits, const DrawOptions& options,
                  std::mt19937_64& random);

}  // namespace zerod::train
