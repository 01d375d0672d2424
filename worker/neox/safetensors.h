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
/// tensors() says lies inside the file; a header of more than 8 MiB, far above any model's, is
/// refused unread. Threads may read at the same time.
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

  /// Where a tensor's data begins, from the start of the file.
  uint64_t OffsetBytes(const std::string& name) const;

  /// Reads out.size() elements of a tensor of type F32, F16 or BF16 as float32, row-major, from
  /// `first_index` on.
  void Read(const std::string& name, uint64_t first_index, std::span<float> out) const;

 private:
  const Entry& Find(const std::string& name) const;

  InputFile file_;
  uint64_t data_offset_bytes_ = 0;
  std::map<std::string, Entry> tensors_;
};

}  // namespace zerod::neox
