#pragma once

#include <memory>
#include <string>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include "proto/peer.grpc.pb.h"
#include "server/cluster/link.h"

namespace zerod {

/// The end of a link that called. Every call has a channel of its own: gRPC would otherwise wait
/// longer and longer before it resolves a name or connects again.
class CallerLink final : public Link,
                         private grpc::ClientBidiReactor<v1::PeerMessage, v1::PeerMessage> {
 public:
  CallerLink(LinkEvents& events, int node, const std::string& address);

  /// Sends `hello` and begins to read. Returns at once; a peer that can't be reached ends the link.
  void Call(std::shared_ptr<const v1::PeerMessage> hello);

 private:
  void StartReadOf(v1::PeerMessage* message) override { StartRead(message); }
  void StartWriteOf(const v1::PeerMessage* message) override { StartWrite(message); }
  void StartFinish() override { StartWritesDone(); }
  void StartEnd(const grpc::Status& status, bool writing) override;

  void OnReadDone(bool ok) override { ReadDone(ok); }
  void OnWriteDone(bool ok) override { WriteDone(ok); }
  void OnDone(const grpc::Status& status) override;

  grpc::ClientContext context_;
  std::unique_ptr<v1::Peer::Stub> stub_;
};

}  // namespace zerod
