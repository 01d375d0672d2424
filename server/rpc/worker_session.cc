#include "server/rpc/worker_session.h"

#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "proto/contract/convert.h"
#include "proto/contract/error.h"
#include "server/rpc/caught_error.h"
#include "server/rpc/hello.h"

namespace zerod {

WorkerSession::WorkerSession(Engine& engine, grpc::CallbackServerContext* context)
    : engine_(engine), context_(context), outbox_(std::make_shared<Outbox>(this, context)) {
  StartRead(&incoming_);
}

void WorkerSession::OnReadDone(bool ok) {
  if (!ok) {
    End();
    return;
  }
  try {
    Handle(incoming_);
  } catch (...) {
    Fail(CaughtError());
  }
  if (!outbox_->closed()) StartRead(&incoming_);
}

void WorkerSession::OnWriteDone(bool ok) { outbox_->OnWriteDone(ok); }

void WorkerSession::OnDone() {
  // A stream whose last read succeeded, e.g. one that was refused, has not passed End().
  if (attach_id_ != 0) engine_.Disconnect(attach_id_, "its stream has ended");
  delete this;
}

void WorkerSession::Handle(const v1::WorkerMessage& message) {
  if (message.ByteSizeLong() > kMessageBytesMax) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("a message of ", message.ByteSizeLong(), " bytes; at most ",
                       kMessageBytesMax, " are possible"));
  }
  switch (message.body_case()) {
    case v1::WorkerMessage::kHello:
      return HandleHello(message.hello());
    case v1::WorkerMessage::kSubmit:
      return HandleSubmit(message);
    case v1::WorkerMessage::kDetach:
      return HandleDetach(message);
    case v1::WorkerMessage::BODY_NOT_SET:
      break;
  }
  throw Error(ErrorCode::kInvalidArgument, "a message that is neither Hello nor Submit nor Detach");
}

void WorkerSession::HandleHello(const v1::Hello& hello) {
  if (greeted_) throw Error(ErrorCode::kFailedPrecondition, "a second Hello on one stream");
  greeted_ = true;
  const AttachRequest request = ReadHello(hello);
  name_ = Concat("rank ", request.rank, " (", request.program, ", pid ", request.pid, ")");
  spdlog::info(Concat(name_, " asks for job '", request.job_id, "'"));
  attach_id_ = engine_.Attach(request, outbox_);
}

void WorkerSession::HandleSubmit(const v1::WorkerMessage& message) {
  RequireWelcomed(message);
  if (message.submit().operations_size() > kOperationsMax) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat(message.submit().operations_size(), " operations in one message; at most ",
                       kOperationsMax, " are possible"));
  }
  std::vector<Operation> operations;
  operations.reserve(message.submit().operations_size());
  for (const v1::Operation& operation : message.submit().operations()) {
    operations.push_back(FromMessage(operation));
  }
  engine_.Submit(attach_id_, message.epoch(), std::move(operations));
}

void WorkerSession::HandleDetach(const v1::WorkerMessage& message) {
  RequireWelcomed(message);
  detaching_ = true;
  spdlog::info(Concat(name_, " detaches", message.detach().drop() ? " and drops its job" : ""));
  engine_.Detach(attach_id_, message.detach().drop());
}

void WorkerSession::RequireWelcomed(const v1::WorkerMessage& message) const {
  const uint64_t epoch = outbox_->epoch();
  if (epoch == 0) {
    throw Error(ErrorCode::kFailedPrecondition, "a Submit or Detach before the Welcome");
  }
  if (detaching_) throw Error(ErrorCode::kFailedPrecondition, "a message after Detach");
  if (message.epoch() != epoch) {
    throw Error(ErrorCode::kAborted,
                Concat("a message of epoch ", message.epoch(), "; this attach has epoch ", epoch));
  }
}

/// The worker broke the rules, or its request was refused.
void WorkerSession::Fail(const Error& error) {
  spdlog::warn(Concat(name_, " is refused: ", error.what()));
  outbox_->OnFault(error);
  if (attach_id_ != 0) engine_.Disconnect(attach_id_, error.what());
}

/// No message follows: the worker closed its side or is gone.
void WorkerSession::End() {
  std::string reason = outbox_->overflow();
  if (reason.empty()) {
    reason = context_->IsCancelled() ? "its connection broke" : "it closed its stream";
  }
  if (!outbox_->closed() || !outbox_->overflow().empty()) {
    spdlog::warn(Concat(name_, " is gone: ", reason, " without Detach"));
  }
  if (attach_id_ != 0) engine_.Disconnect(attach_id_, reason);
  // Ends the stream in every case; on a broken one the write fails at once.
  outbox_->OnFault(Error(ErrorCode::kAborted, reason + " without Detach"));
}

}  // namespace zerod
