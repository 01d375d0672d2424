#include "worker/autograd/address_reserve.h"

#include <algorithm>
#include <cerrno>

#include <sys/mman.h>
#include <unistd.h>

#include "proto/contract/error.h"
#include "worker/autograd/fault_report.h"

namespace zerod {
namespace {

size_t WholePages(size_t bytes) {
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (std::max<size_t>(bytes, 1) + page_bytes - 1) / page_bytes * page_bytes;
}

}  // namespace

AddressReserve::AddressReserve(size_t bytes, const std::string& label)
    : size_bytes_(WholePages(bytes)),
      data_(mmap(nullptr, size_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                 0)) {
  if (data_ == MAP_FAILED) {
    throw Error(ErrorCode::kResourceExhausted,
                Concat("layer '", label, "': no address space for ", size_bytes_, " bytes: ",
                       ErrnoText(errno), "; raise the limit on virtual memory (ulimit -v)"));
  }
  range_ = WatchRange(data_, size_bytes_, label);
}

AddressReserve::~AddressReserve() {
  UnwatchRange(range_);
  munmap(data_, size_bytes_);
}

}  // namespace zerod
