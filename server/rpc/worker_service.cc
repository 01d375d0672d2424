#include "server/rpc/worker_service.h"

#include "server/rpc/worker_session.h"

namespace zerod {

grpc::ServerBidiReactor<v1::WorkerMessage, v1::DaemonMessage>* WorkerService::Session(
    grpc::CallbackServerContext* context) {
  return new WorkerSession(engine_, context);
}

}  // namespace zerod
