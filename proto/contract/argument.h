#pragma once

#include <string>
#include <vector>

namespace zerod {

struct Operation;

/// One thing that all ranks must say alike of an operation, in words.
struct Argument {
  std::string what;   ///< e.g. "layer 'block3' tensor 'weight': shape"
  std::string value;  ///< e.g. "[4, 4]"; numbers so that equal texts are equal bits

  bool operator==(const Argument&) const = default;
};

/// The texts of one operation have about so many bytes at most; what comes after that is left out.
inline constexpr size_t kArgumentBytesMax = 8 << 10;

/// All that FingerprintOf(operation) hashes, in a fixed order. Empty for what has no arguments,
/// such as a gather.
std::vector<Argument> ArgumentsOf(const Operation& operation);

/// Names the first difference with both values, e.g. "learning rate 0.1 and 0.2"; empty if there is
/// none.
std::string FirstDifference(const std::vector<Argument>& one, const std::vector<Argument>& other);

}  // namespace zerod
