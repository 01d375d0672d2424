#include "server/rpc/outbox.h"

#include <utility>

#include "proto/contract/convert.h"

namespace zerod {

void Outbox::OnWelcome(const Welcome& welcome) {
  v1::DaemonMessage message;
  v1::Welcome& body = *message.mutable_welcome();
  body.set_job_id(welcome.job_id);
  body.set_created(welcome.created);
  body.set_step(welcome.step);
  body.set_dp(welcome.mesh.dp);
  body.set_tp(welcome.mesh.tp);
  body.set_node(welcome.node);
  body.set_node_count(welcome.node_count);
  body.set_token(welcome.token);
  body.set_private_state(welcome.private_state);
  body.set_gradient_slots(welcome.gradient_slots);
  body.set_cache_bytes(welcome.cache_bytes);
  body.set_deadline_ms(static_cast<int32_t>(welcome.deadline_ms));
  {
    const std::lock_guard lock(mutex_);
    epoch_ = welcome.epoch;
  }
  Push(std::move(message), false);
}

void Outbox::OnPlan(uint64_t ticket, int layer, const LayerPlan& plan) {
  v1::DaemonMessage message;
  ToMessage(plan, *message.mutable_plan());
  message.mutable_plan()->set_ticket(ticket);
  message.mutable_plan()->set_layer(layer);
  Push(std::move(message), false);
}

void Outbox::OnWarning(const std::string& text) {
  v1::DaemonMessage message;
  message.mutable_warning()->set_message(text);
  Push(std::move(message), false);
}

void Outbox::OnFault(const Error& error) {
  v1::DaemonMessage message;
  ToMessage(error, *message.mutable_fault());
  Push(std::move(message), true);
}

void Outbox::OnDetached() {
  v1::DaemonMessage message;
  message.mutable_detached();
  Push(std::move(message), true);
}

void Outbox::Push(v1::DaemonMessage message, bool last) {
  const std::lock_guard lock(mutex_);
  if (closed_ || stream_ == nullptr) return;
  message.set_epoch(epoch_);
  queued_bytes_ += message.ByteSizeLong();
  // The last message always fits: it is what tells the worker why.
  if (!last && (queue_.size() >= kMessagesMax || queued_bytes_ > kBytesMax)) {
    Overflow();
    return;
  }
  closed_ = last;
  queue_.push_back(std::move(message));
  if (writing_) return;
  writing_ = true;
  stream_->StartWrite(&queue_.front());
}

void Outbox::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  queued_bytes_ -= queue_.front().ByteSizeLong();
  queue_.pop_front();
  if (!ok) {
    closed_ = true;
    FinishStream(overflow_.empty()
                     ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "the worker is gone")
                     : grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, overflow_));
  } else if (!queue_.empty()) {
    writing_ = true;
    stream_->StartWrite(&queue_.front());
  } else if (closed_) {
    // OK even after a Fault: with any other status the client's side may throw away messages that
    // it has not read yet, the Fault among them.
    FinishStream(grpc::Status::OK);
  }
}

bool Outbox::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

uint64_t Outbox::epoch() const {
  const std::lock_guard lock(mutex_);
  return epoch_;
}

std::string Outbox::overflow() const {
  const std::lock_guard lock(mutex_);
  return overflow_;
}

/// The write under way never ends by itself when the worker doesn't read; cancelling ends it.
void Outbox::Overflow() {
  closed_ = true;
  overflow_ = Concat("it didn't read its stream: ", queue_.size(), " messages of together ",
                     queued_bytes_, " bytes are waiting");
  if (writing_) {
    context_->TryCancel();
  } else {
    FinishStream(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, overflow_));
  }
}

void Outbox::FinishStream(const grpc::Status& status) {
  if (stream_ == nullptr) return;
  std::exchange(stream_, nullptr)->Finish(status);
}

}  // namespace zerod
