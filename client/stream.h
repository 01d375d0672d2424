#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include "proto/session.grpc.pb.h"

namespace zerod {

/// A channel to the daemon's control socket, connected. Throws Error (kUnavailable) if nobody who
/// speaks gRPC answers until `timeout` has passed.
std::shared_ptr<grpc::Channel> OpenChannel(const std::string& socket_path,
                                           std::chrono::milliseconds timeout);

/// Hears what the daemon says. Called from gRPC's threads, one call at a time; must not block.
class StreamListener {
 public:
  virtual void OnMessage(const v1::DaemonMessage& message) = 0;
  /// The last call: the stream is over.
  virtual void OnEnd(const grpc::Status& status) = 0;

 protected:
  ~StreamListener() = default;
};

/// The long-lived stream of one worker. Sending never blocks: messages wait in an outbox while one
/// is under way, so a frozen daemon can't hold up the caller. Thread-safe.
class Stream final : private grpc::ClientBidiReactor<v1::WorkerMessage, v1::DaemonMessage> {
 public:
  /// Starts the call. `listener` outlives the stream.
  Stream(const std::shared_ptr<grpc::Channel>& channel, StreamListener& listener);
  /// Cancels the call if it still runs and waits for the listener's last call.
  ~Stream() override;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Messages sent after the end of the stream are dropped.
  void Send(v1::WorkerMessage message);
  /// Tells the daemon that nothing follows; gives it up to `timeout` to end the stream.
  void Finish(std::chrono::milliseconds timeout);

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnWritesDoneDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  /// Starts the next write, or lets go of the call if reading has ended.
  void Advance();

  StreamListener& listener_;
  std::unique_ptr<v1::Worker::Stub> stub_;
  grpc::ClientContext context_;
  v1::DaemonMessage incoming_;
  v1::WorkerMessage outgoing_;  // owned by gRPC while writing_

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<v1::WorkerMessage> outbox_;
  bool writing_ = false;
  bool finishing_ = false;    // nothing may be sent any more
  bool half_closed_ = false;  // and the daemon has been told
  bool reading_ = true;
  bool released_ = false;
  bool done_ = false;
};

}  // namespace zerod
