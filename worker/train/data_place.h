#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace zerod::train {

/// What decides which tokens a step reads. It travels with every step, so that a job that goes on
/// with other data can say so. A plain value.
struct DataPlace {
  int64_t batch = 0;
  int64_t seq = 0;
  int64_t train_tokens = 0;
  std::optional<uint64_t> shuffle_seed;

  std::string ToText() const;

  /// What differs from a place of ToText(), e.g. "--batch was 8 and is 4"; empty if nothing does or
  /// the text is none of ours.
  std::string DifferenceFrom(const std::string& text) const;
};

}  // namespace zerod::train
