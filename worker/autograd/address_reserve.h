#pragma once

#include <cstddef>
#include <string>

namespace zerod {

/// Address space without memory: every access faults. Watched under a name (fault_report.h).
class AddressReserve {
 public:
  /// At least one page. Throws zerod::Error (resource exhausted) without address space.
  AddressReserve(size_t bytes, const std::string& label);
  ~AddressReserve();
  AddressReserve(const AddressReserve&) = delete;
  AddressReserve& operator=(const AddressReserve&) = delete;

  void* data() const { return data_; }

 private:
  size_t size_bytes_;  // whole pages
  void* data_;
  int range_;
};

}  // namespace zerod
