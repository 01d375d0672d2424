#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "worker/neox/input_file.h"

namespace zerod::neox {

/// A .safetensors file, open for reading. The layout is 8 bytes of header length, a JSON header,
/// then the data of all tensors without gaps. The constructor checks the whole header, so that what
/// tensors() says lies inside the file. Threads may read at the same time.
/// Every failure throws Error(kDataLoss, kNotFound without the file) that names file and tensor.
class Safetensors {
 public:
  struct Entry {
    std::string dtype;  // as in the file: F32, F16, BF16, BOOL, ...
    std::vector<int64_t> shape;
    uint64_t begin_bytes = 0;  // from the start of the data; included
    uint64_t end_bytes = 0;    // not included
  };

  explicit Safetensors(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, Entry>& tensors() const { return tensors_; }

  /// Reads a tensor of type F32, F16 or BF16 as float32, row-major; `out` has one element for each
  /// of the tensor's.
  void Read(const std::string& name, std::span<float> out) const;

 private:
  InputFile file_;
  uint64_t data_offset_bytes_ = 0;
  std::map<std::string, Entry> tensors_;
};

}  // namespace zerod::neox
