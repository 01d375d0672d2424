#pragma once

#include "proto/session.grpc.pb.h"
#include "server/engine/engine.h"

namespace zerod {

/// Serves the workers of this node. No thread per session.
class WorkerService : public v1::Worker::CallbackService {
 public:
  /// `engine` must outlive the server.
  explicit WorkerService(Engine& engine) : engine_(engine) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::DaemonMessage>* Session(
      grpc::CallbackServerContext* context) override;

 private:
  Engine& engine_;
};

}  // namespace zerod
