#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "proto/contract/descriptor.h"

namespace zerod {

/// Opens the memory that a request asks for and sets its size. Throws Error.
using OpenMemory =
    std::function<FileDescriptor(const DescriptorRequest& request, int64_t& size_bytes)>;

/// Hands out memory over the descriptor socket, on one thread for all workers. A connection that
/// sends nonsense, sends half a request or doesn't read its answers is closed and holds up no
/// other.
class DescriptorService {
 public:
  static constexpr size_t kConnectionsMax = 4096;
  static constexpr std::chrono::seconds kHalfRequestLimit{2};

  /// Listens on `path` (throws Error as ListenUnix does) and serves until destroyed; the file is
  /// removed then. `open` is called on the service's thread.
  DescriptorService(std::string path, OpenMemory open);
  ~DescriptorService();
  DescriptorService(const DescriptorService&) = delete;
  DescriptorService& operator=(const DescriptorService&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  struct Connection {
    FileDescriptor socket;
    Clock::time_point half_since = Clock::time_point::max();  // max: no half request waits
  };

  void Run();
  void Accept();
  bool Serve(Connection& connection) const;  // false: close it
  void Answer(int socket, const DescriptorRequest& request) const;

  const std::string path_;
  const OpenMemory open_;
  FileDescriptor listener_;
  FileDescriptor stop_;  // an eventfd
  std::vector<Connection> connections_;
  Clock::time_point accept_after_{};  // later than now while no descriptor is left
  std::thread thread_;
};

}  // namespace zerod
