#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "proto/contract/plan.h"

namespace zerod {

/// Where one whole tensor lies in a file: row-major, without gaps, little-endian.
struct FileRange {
  std::string path;          ///< absolute, the same on every node
  int64_t offset_bytes = 0;  ///< of the first element, from the start of the file
  DType dtype = DType::kFloat32;

  bool operator==(const FileRange&) const = default;
};

/// Longest path of a FileRange.
inline constexpr size_t kFilePathBytesMax = 4095;

}  // namespace zerod
