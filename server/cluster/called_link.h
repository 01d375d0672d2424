#pragma once

#include <memory>

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "server/cluster/link.h"

namespace zerod {

/// The end of a link that was called.
class CalledLink final : public Link,
                         private grpc::ServerBidiReactor<v1::PeerMessage, v1::PeerMessage> {
 public:
  using Reactor = grpc::ServerBidiReactor<v1::PeerMessage, v1::PeerMessage>;

  CalledLink(LinkEvents& events, grpc::CallbackServerContext& context)
      : Link(events, std::nullopt), context_(context) {}

  /// Begins to read; to be returned from the service's method.
  Reactor* Serve();

 private:
  void StartReadOf(v1::PeerMessage* message) override { StartRead(message); }
  void StartWriteOf(const v1::PeerMessage* message) override { StartWrite(message); }
  void StartFinish() override { EndLocked(grpc::Status::OK); }
  void StartEnd(const grpc::Status& status, bool writing) override;
  void WriteEndedLate() override { Reactor::Finish(status_); }

  void OnReadDone(bool ok) override { ReadDone(ok); }
  void OnWriteDone(bool ok) override { WriteDone(ok); }
  void OnCancel() override;
  void OnDone() override;

  grpc::CallbackServerContext& context_;
  bool cancelled_ = false;  // under mutex_
  grpc::Status status_;     // what to finish with once the write under way is over
};

}  // namespace zerod
