#include "client/descriptor_client.h"

#include <utility>

#include "proto/contract/error.h"

namespace zerod {

DescriptorClient::DescriptorClient(const std::string& socket_path, uint64_t token,
                                   std::chrono::milliseconds timeout)
    : socket_(ConnectUnix(DescriptorSocketPath(socket_path))),
      token_(token),
      timeout_ms_(static_cast<int>(timeout.count())) {}

Mapping DescriptorClient::Map(MemoryKind kind, int index, int chunk, int64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(in_step_, false)) {
    throw Error(ErrorCode::kUnavailable, "the descriptor socket failed at an earlier request");
  }
  SendRequest(socket_.get(), {.token = token_, .kind = kind, .index = index, .chunk = chunk},
              timeout_ms_);
  FileDescriptor fd;
  const DescriptorReply reply = ReceiveReply(socket_.get(), fd, timeout_ms_);
  in_step_ = true;
  if (!reply.error.empty()) throw Error(ErrorCode::kFailedPrecondition, reply.error);
  if (size_bytes != 0 && reply.size_bytes != size_bytes) {
    throw Error(ErrorCode::kDataLoss, Concat("the daemon gave ", reply.size_bytes,
                                             " bytes of memory instead of ", size_bytes));
  }
  return MapShared(fd, reply.size_bytes,
                   kind == MemoryKind::kRegion ? Access::kReadOnly : Access::kReadWrite);
}

}  // namespace zerod
