#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/plan.h"
#include "worker/neox/output_file.h"

namespace zerod::neox {

/// A tensor as a file will have it.
struct StoredTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;

  uint64_t bytes() const;
};

/// Divides tensors among as few files as the order allows: in sequence, each file at most
/// `max_bytes` unless a single tensor has more.
std::vector<std::vector<StoredTensor>> DivideIntoFiles(std::vector<StoredTensor> tensors,
                                                       uint64_t max_bytes);

/// A .safetensors file in the making: the header is written first, then tensors in any order at the
/// places that it gives them. Nothing is kept in memory. It appears under its name with Publish, or
/// not at all. Failures throw WriteError.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, const std::vector<StoredTensor>& tensors);

  /// Writes elements of a tensor from `first_index` on, in the tensor's type.
  void Write(const std::string& name, uint64_t first_index, std::span<const std::byte> elements);

  /// All tensors have been written, each element once; they are on the disk.
  void Finish();
  void Publish() { file_.Publish(); }

 private:
  struct Place {
    uint64_t offset_bytes = 0;
    uint64_t bytes = 0;
    uint64_t element_bytes = 0;
  };

  struct Layout {
    std::string header;  // with its length in front
    std::map<std::string, Place> places;
    uint64_t size_bytes = 0;
  };

  static Layout Arrange(const std::vector<StoredTensor>& tensors);
  SafetensorsWriter(const std::string& path, Layout layout);

  std::map<std::string, Place> places_;
  uint64_t missing_bytes_ = 0;
  OutputFile file_;
};

}  // namespace zerod::neox
