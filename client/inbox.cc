#include "client/inbox.h"

#include <utility>

#include "client/log.h"
#include "proto/contract/convert.h"
#include "proto/contract/status.h"

namespace zerod {
namespace {

Error ReasonOf(const grpc::Status& status, const std::string& peer) {
  if (status.ok()) {
    return Error(ErrorCode::kUnavailable, Concat("the daemon at ", peer, " ended the session"));
  }
  try {
    ThrowIfError(status);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnavailable) {
      return Error(ErrorCode::kUnavailable,
                   Concat("the daemon at ", peer, " is gone (", error.what(),
                          "); look into its log, start it again and attach anew"));
    }
    if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
      return Error(ErrorCode::kFailedPrecondition,
                   Concat("what answers at ", peer, " isn't a zerod of this version"));
    }
    return error;
  }
  return Error(ErrorCode::kInternal, status.error_message());
}

}  // namespace

Inbox::Inbox(std::string peer, WarningHandler on_warning)
    : peer_(std::move(peer)), on_warning_(on_warning ? std::move(on_warning) : LogWarning) {}

void Inbox::OnMessage(const v1::DaemonMessage& message) {
  if (message.has_warning()) {
    on_warning_(message.warning().message());
    return;
  }
  const std::lock_guard lock(mutex_);
  if (message.has_welcome()) {
    welcome_ = message;
  } else if (message.has_plan()) {
    plans_[message.plan().ticket()] = message.plan();
  } else if (message.has_fault()) {
    End(FromMessage(message.fault()));
  } else if (message.has_detached()) {
    detached_ = true;
    End(Error(ErrorCode::kFailedPrecondition, "the session is detached"));
  }
  changed_.notify_all();
}

void Inbox::OnEnd(const grpc::Status& status) {
  const std::lock_guard lock(mutex_);
  End(ReasonOf(status, peer_));
}

void Inbox::End(Error reason) {
  if (!reason_) reason_ = std::move(reason);
  if (page_ != nullptr) Abort(*page_);
  changed_.notify_all();
}

void Inbox::BindPage(ControlPage& page) {
  const std::lock_guard lock(mutex_);
  page_ = &page;
  if (reason_) Abort(page);
}

template <typename Predicate>
void Inbox::Await(std::unique_lock<std::mutex>& lock, Clock::time_point deadline,
                  const std::string& what, Predicate predicate) {
  const auto arrived = [&] { return predicate() || reason_.has_value(); };
  if (!changed_.wait_until(lock, deadline, arrived)) {
    throw Error(ErrorCode::kDeadlineExceeded,
                Concat("the daemon at ", peer_, " didn't answer in time: ", what));
  }
  if (!predicate()) throw Error(*reason_);
}

v1::DaemonMessage Inbox::AwaitWelcome(Clock::time_point deadline, const std::string& what) {
  std::unique_lock lock(mutex_);
  Await(lock, deadline, what, [this] { return welcome_.has_value(); });
  return *std::exchange(welcome_, std::nullopt);
}

v1::LayerPlan Inbox::AwaitPlan(uint64_t ticket, Clock::time_point deadline,
                               const std::string& what) {
  std::unique_lock lock(mutex_);
  Await(lock, deadline, what, [&] { return plans_.contains(ticket); });
  return std::move(plans_.extract(ticket).mapped());
}

void Inbox::AwaitDetached(Clock::time_point deadline, const std::string& what) {
  std::unique_lock lock(mutex_);
  Await(lock, deadline, what, [this] { return detached_; });
}

void Inbox::ThrowIfOverBy(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [this] { return reason_.has_value(); });
  if (reason_) throw Error(*reason_);
}

void Inbox::ThrowReason(Clock::time_point deadline) {
  ThrowIfOverBy(deadline);
  throw Error(ErrorCode::kAborted,
              Concat("the daemon at ", peer_, " ended the attach and gave no reason"));
}

void Inbox::ThrowIfOver() const {
  const std::lock_guard lock(mutex_);
  if (reason_) throw Error(*reason_);
}

}  // namespace zerod
