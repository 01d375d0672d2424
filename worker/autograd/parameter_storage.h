#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace zerod {

class AddressReserve;

/// The one storage of a chunk for life; the chunk's parameters are views of it. Binding and
/// unbinding swap the memory under all tensors that share it, those that autograd saved included.
///
/// Unbound, the storage has 0 bytes and points into reserved address space that can't be read: a
/// read is a memory fault (fault_report.h names the layer), never an old value. Host memory only.
///
/// Not thread-safe: bind and unbind while nothing computes with the parameters.
class ParameterStorage {
 public:
  /// Room for `numel` elements of `dtype`, unbound. `label` names the layer in fault reports.
  /// Throws zerod::Error (resource exhausted) without address space.
  ParameterStorage(at::ScalarType dtype, int64_t numel, const std::string& label);
  /// Tensors may outlive it; they are unbound for good.
  ~ParameterStorage();
  ParameterStorage(const ParameterStorage&) = delete;
  ParameterStorage& operator=(const ParameterStorage&) = delete;

  /// A leaf of shape `sizes`, contiguous, whose first element is element `offset_numel` of the
  /// chunk. May be called while unbound.
  at::Tensor MakeParameter(int64_t offset_numel, at::IntArrayRef sizes, bool requires_grad) const;

  /// Lets the storage read `data`: numel elements, aligned to 64 bytes, owned by the caller, valid
  /// until Unbind. Pages that are mapped read-only are fine as long as nobody writes parameters.
  void Bind(void* data);
  void Unbind();
  bool bound() const { return bound_; }
  /// Bytes of the chunk while bound.
  size_t size_bytes() const { return size_bytes_; }

 private:
  at::ScalarType dtype_;
  int64_t numel_;
  size_t size_bytes_;
  std::unique_ptr<AddressReserve> reserve_;
  c10::Storage storage_;
  bool bound_ = false;
};

}  // namespace zerod
