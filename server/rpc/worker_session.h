#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/engine/engine.h"
#include "server/rpc/outbox.h"

namespace zerod {

/// One worker's stream, from Hello to Detach. gRPC owns it in effect: it deletes itself when the
/// stream is done. A read is always outstanding until the outbox is closed, so a worker that is
/// gone shows as a failed read.
///
/// Threads: gRPC's. Reads come one at a time, writes too, both beside each other.
class WorkerSession : public Outbox::Stream {
 public:
  static constexpr int kOperationsMax = 4096;  ///< of one Submit
  static constexpr size_t kMessageBytesMax = size_t{32} << 20;

  /// `engine` must outlive the stream.
  WorkerSession(Engine& engine, grpc::CallbackServerContext* context);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  void Handle(const v1::WorkerMessage& message);
  void HandleHello(const v1::Hello& hello);
  void HandleSubmit(const v1::WorkerMessage& message);
  void HandleDetach(const v1::WorkerMessage& message);
  void RequireWelcomed(const v1::WorkerMessage& message) const;
  void Fail(const Error& error);
  void End();

  Engine& engine_;
  grpc::CallbackServerContext* context_;
  std::shared_ptr<Outbox> outbox_;
  v1::WorkerMessage incoming_;
  std::string name_ = "a worker";  // for the log
  uint64_t attach_id_ = 0;         // 0: not attached
  bool greeted_ = false;
  bool detaching_ = false;
};

}  // namespace zerod
