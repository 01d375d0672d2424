#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include "server/collective/communicator.h"

namespace zerod {

/// One TCP connection to every other node, all served by one loop thread of Gloo. Destroying it
/// closes the connections once what was sent has arrived; no buffer of it may exist any more.
class GlooMesh {
 public:
  /// Connects to all nodes through the store. Needs node_count >= 2. Throws Error kUnavailable or
  /// kDeadlineExceeded, naming the node.
  GlooMesh(const CommunicatorOptions& options, RendezvousStore& store);
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;

  std::unique_ptr<gloo::transport::UnboundBuffer> CreateBuffer(void* data, size_t bytes);

  /// Resets all connections: nothing is read from or written to any buffer afterwards, what is
  /// still on its way is lost. Takes up to 10 ms per node. Pending operations don't notice; wake
  /// them first.
  void Close();

 private:
  void Publish(RendezvousStore& store) const;
  void Connect(RendezvousStore& store);

  const CommunicatorOptions options_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;
};

/// Text of an exception of Gloo without the source position of Gloo's build.
std::string GlooText(const std::exception& exception);

}  // namespace zerod
