#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "client/stream.h"
#include "proto/contract/control_page.h"
#include "proto/contract/error.h"

namespace zerod {

/// What the daemon has said in one attach, kept until somebody asks. Once the attach is over it
/// remembers the first reason, aborts the control page so that every waiter wakes, and throws that
/// reason from then on. Thread-safe.
class Inbox final : public StreamListener {
 public:
  using Clock = std::chrono::steady_clock;
  using WarningHandler = std::function<void(const std::string&)>;

  /// `peer` names the daemon in errors.
  Inbox(std::string peer, WarningHandler on_warning);

  void OnMessage(const v1::DaemonMessage& message) override;
  void OnEnd(const grpc::Status& status) override;

  /// Passes a warning on that isn't the daemon's.
  void Warn(const std::string& message) const { on_warning_(message); }

  /// The page outlives the inbox's last message.
  void BindPage(ControlPage& page);

  /// Each waits for one answer of the daemon; throws Error (kDeadlineExceeded, naming `what`) or
  /// why the attach is over.
  v1::DaemonMessage AwaitWelcome(Clock::time_point deadline, const std::string& what);
  v1::LayerPlan AwaitPlan(uint64_t ticket, Clock::time_point deadline, const std::string& what);
  void AwaitDetached(Clock::time_point deadline, const std::string& what);
  /// Waits for the reason after the control page was found aborted, then throws it.
  [[noreturn]] void ThrowReason(Clock::time_point deadline);
  void ThrowIfOver() const;
  /// Gives the end of the session until `deadline` to arrive; returns if it doesn't.
  void ThrowIfOverBy(Clock::time_point deadline);

 private:
  template <typename Predicate>
  void Await(std::unique_lock<std::mutex>& lock, Clock::time_point deadline,
             const std::string& what, Predicate predicate);
  void End(Error reason);  // with mutex_ held; the first one stays

  const std::string peer_;
  const WarningHandler on_warning_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<v1::DaemonMessage> welcome_;
  std::map<uint64_t, v1::LayerPlan> plans_;  // by ticket
  bool detached_ = false;
  std::optional<Error> reason_;
  ControlPage* page_ = nullptr;
};

}  // namespace zerod
