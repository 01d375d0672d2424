#include "server/cluster/called_link.h"

namespace zerod {

CalledLink::Reactor* CalledLink::Serve() {
  self_ = shared_from_this();
  ReadNext();
  return this;
}

// Finish() may not overtake a write, and a write to a peer that doesn't read never ends by itself.
void CalledLink::StartEnd(const grpc::Status& status, bool writing) {
  if (writing) {
    status_ = status;
    context_.TryCancel();
  } else {
    Reactor::Finish(status);
  }
}

void CalledLink::OnCancel() {
  std::lock_guard lock(mutex_);
  cancelled_ = true;
  EndLocked(grpc::Status::CANCELLED);
}

void CalledLink::OnDone() {
  bool cancelled;
  {
    std::lock_guard lock(mutex_);
    cancelled = cancelled_;
  }
  Done(cancelled ? "the connection was lost" : "it closed the link", false);
}

}  // namespace zerod
