#include "worker/autograd/parameter_storage.h"

#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include "proto/contract/error.h"
#include "worker/autograd/address_reserve.h"

namespace zerod {
namespace {

constexpr uintptr_t kAlignmentBytes = 64;  // what LibTorch's own allocator gives

at::DataPtr Borrowed(void* data) { return {data, c10::Device(c10::kCPU)}; }

}  // namespace

ParameterStorage::ParameterStorage(at::ScalarType dtype, int64_t numel, const std::string& label)
    : dtype_(dtype),
      numel_(numel),
      size_bytes_(static_cast<size_t>(numel) * c10::elementSize(dtype)),
      reserve_(std::make_unique<AddressReserve>(size_bytes_, label)),
      storage_(c10::Storage::use_byte_size_t(), 0, Borrowed(reserve_->data()),
               /*allocator=*/nullptr, /*resizable=*/false) {}

ParameterStorage::~ParameterStorage() {
  // Whoever still holds a parameter or a saved tensor keeps the reserve, so that its addresses
  // aren't given to somebody else.
  Unbind();
  AddressReserve* reserve = reserve_.release();
  storage_.unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(
      reserve->data(), reserve, [](void* owned) { delete static_cast<AddressReserve*>(owned); },
      c10::Device(c10::kCPU)));
}

at::Tensor ParameterStorage::MakeParameter(int64_t offset_numel, at::IntArrayRef sizes,
                                           bool requires_grad) const {
  at::Tensor parameter = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage_), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(dtype_));
  c10::TensorImpl* impl = parameter.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  impl->set_storage_offset(offset_numel);
  ZEROD_CHECK(offset_numel >= 0 && offset_numel + parameter.numel() <= numel_, "elements ",
              offset_numel, " to ", offset_numel + parameter.numel(), " of a chunk of ", numel_);
  parameter.set_requires_grad(requires_grad);
  return parameter;
}

void ParameterStorage::Bind(void* data) {
  ZEROD_CHECK(!bound_, "the chunk is bound already");
  ZEROD_CHECK(reinterpret_cast<uintptr_t>(data) % kAlignmentBytes == 0, "unaligned memory ", data);
  // Swapped inside the storage: set_data would leave the old memory in tensors that autograd saved.
  c10::StorageImpl* impl = storage_.unsafeGetStorageImpl();
  impl->set_data_ptr_noswap(Borrowed(data));
  impl->set_nbytes(size_bytes_);
  bound_ = true;
}

void ParameterStorage::Unbind() {
  c10::StorageImpl* impl = storage_.unsafeGetStorageImpl();
  impl->set_data_ptr_noswap(Borrowed(reserve_->data()));
  impl->set_nbytes(static_cast<size_t>(0));
  bound_ = false;
}

}  // namespace zerod
