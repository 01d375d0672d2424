#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "proto/contract/descriptor.h"
#include "proto/contract/shared_memory.h"

namespace zerod {

/// Asks the daemon for memory of one attach and maps it. Thread-safe; one request at a time.
class DescriptorClient {
 public:
  /// Connects to the descriptor socket that belongs to `socket_path`. `timeout` bounds each
  /// request.
  DescriptorClient(const std::string& socket_path, uint64_t token,
                   std::chrono::milliseconds timeout);

  /// Maps all that the daemon gives; throws Error (kDataLoss) if that isn't `size_bytes`, where 0
  /// takes any size, or the daemon's refusal (kFailedPrecondition). After a late or broken answer
  /// nothing more can be asked (kUnavailable): answers would go to the wrong requests.
  Mapping Map(MemoryKind kind, int index, int chunk, int64_t size_bytes);

 private:
  std::mutex mutex_;
  const FileDescriptor socket_;
  const uint64_t token_;
  const int timeout_ms_;
  bool in_step_ = true;
};

}  // namespace zerod
