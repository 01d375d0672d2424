#include "server/cluster/link.h"

#include <utility>

#include "proto/contract/error.h"

namespace zerod {

Link::Link(LinkEvents& events, std::optional<int> called) : called_node(called), events_(events) {}

void Link::Send(std::shared_ptr<const v1::PeerMessage> message) {
  std::lock_guard lock(mutex_);
  if (ended_ || finishing_) return;
  const size_t bytes = message->ByteSizeLong();
  if (queue_bytes_ + bytes > kQueueBytesMax) {
    local_reason_ = Concat("it doesn't read: ", queue_.size(), " messages of ", queue_bytes_ >> 20,
                           " MiB wait to be sent");
    EndLocked(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, local_reason_));
    return;
  }
  queue_bytes_ += bytes;
  queue_.push_back(std::move(message));
  if (writing_) return;
  writing_ = true;
  StartWriteOf(queue_.front().get());
}

void Link::ReadNext() {
  std::lock_guard lock(mutex_);
  if (!ended_) StartReadOf(&incoming_);
}

void Link::Finish() {
  std::lock_guard lock(mutex_);
  if (ended_ || finishing_) return;
  finishing_ = true;
  if (!writing_) StartFinish();
}

void Link::Close(grpc::StatusCode code, const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (ended_) return;
  local_reason_ = reason;
  local_refusal_ = code == grpc::StatusCode::FAILED_PRECONDITION;
  EndLocked(grpc::Status(code, reason));
}

void Link::EndLocked(const grpc::Status& status) {
  if (ended_) return;
  ended_ = true;
  StartEnd(status, writing_);
}

void Link::ReadDone(bool ok) {
  if (!ok) {
    std::lock_guard lock(mutex_);
    EndLocked(grpc::Status::OK);
    return;
  }
  v1::PeerMessage message;
  {
    std::lock_guard lock(mutex_);
    message.Swap(&incoming_);
  }
  events_.OnLinkMessage(shared_from_this(), std::move(message));
}

void Link::WriteDone(bool ok) {
  std::lock_guard lock(mutex_);
  writing_ = false;
  queue_bytes_ -= queue_.front()->ByteSizeLong();
  queue_.pop_front();
  if (ended_) {
    WriteEndedLate();
  } else if (!ok) {
    EndLocked(grpc::Status::OK);
  } else if (!queue_.empty()) {
    writing_ = true;
    StartWriteOf(queue_.front().get());
  } else if (finishing_) {
    StartFinish();
  }
}

void Link::Done(const std::string& reason, bool refused) {
  std::shared_ptr<Link> self;
  std::string why;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    self = std::move(self_);
    why = local_reason_.empty() ? reason : local_reason_;
    refused = refused || local_refusal_;
  }
  // Nothing of this object may be touched from here on. The last reference must not go here: a
  // channel that is destroyed on one of gRPC's callback threads can end the queue that this very
  // thread waits on, and gRPC aborts the process.
  events_.OnLinkEnd(std::move(self), why, refused);
}

}  // namespace zerod
