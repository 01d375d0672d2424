#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "proto/session.pb.h"
#include "server/engine/events.h"

namespace zerod {

/// Messages on their way to one worker, in order. The engine holds it as long as it likes; it may
/// outlive the stream, whose address it forgets when it finishes it.
///
/// Threads: any. Calls take the outbox's own lock only and never wait.
class Outbox : public WorkerEvents {
 public:
  using Stream = grpc::ServerBidiReactor<v1::WorkerMessage, v1::DaemonMessage>;

  static constexpr size_t kMessagesMax = 10'000;
  static constexpr size_t kBytesMax = size_t{64} << 20;

  /// `stream` and `context` must live until the stream is done.
  Outbox(Stream* stream, grpc::CallbackServerContext* context)
      : stream_(stream), context_(context) {}

  // WorkerEvents
  void OnWelcome(const Welcome& welcome) override;
  void OnPlan(uint64_t ticket, int layer, const LayerPlan& plan) override;
  void OnWarning(const std::string& message) override;
  void OnFault(const Error& error) override;
  void OnDetached() override;

  /// The stream reports that the newest write has ended. Once the last message is written or a
  /// write has failed, the stream is finished.
  void OnWriteDone(bool ok);

  /// Whether a Fault or Detached is queued: nothing may follow it.
  bool closed() const;

  /// Of the Welcome; 0 before it.
  uint64_t epoch() const;

  /// Why this side gave the stream up; empty if it didn't.
  std::string overflow() const;

 private:
  void Push(v1::DaemonMessage message, bool last);
  void Overflow();
  void FinishStream(const grpc::Status& status);

  mutable std::mutex mutex_;
  Stream* stream_;  // null once finished
  grpc::CallbackServerContext* context_;
  std::deque<v1::DaemonMessage> queue_;  // its front is being written while writing_
  size_t queued_bytes_ = 0;
  bool writing_ = false;
  bool closed_ = false;
  uint64_t epoch_ = 0;
  std::string overflow_;
};

}  // namespace zerod
