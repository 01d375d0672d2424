#include "client/stream.h"

#include <utility>

#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include "proto/contract/descriptor.h"
#include "proto/contract/error.h"

namespace zerod {
namespace {

constexpr int kMessageBytesMax = 32 << 20;
constexpr int kFirstRetryMs = 50;
constexpr int kLaterRetryMs = 500;

/// gRPC ends its threads when its last object goes, and that may take the ten seconds of a poll
/// that covers an unfinished write. A reference that is never given back keeps destructors quick.
void KeepLibrary() { [[maybe_unused]] static const bool kept = (grpc_init(), true); }

}  // namespace

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& socket_path,
                                           std::chrono::milliseconds timeout) {
  KeepLibrary();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  arguments.SetMaxSendMessageSize(kMessageBytesMax);
  // A connection of its own: sessions of one process must not share flow control or fate.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstRetryMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kFirstRetryMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLaterRetryMs);
  auto channel = grpc::CreateCustomChannel("unix:" + socket_path,
                                           grpc::InsecureChannelCredentials(), arguments);
  if (!channel->WaitForConnected(std::chrono::system_clock::now() + timeout)) {
    // gRPC doesn't say why; the kernel does.
    std::string reason = "something listens there, but it isn't a zerod that answers";
    try {
      ConnectUnix(socket_path);
    } catch (const Error& error) {
      reason = error.what();
    }
    throw Error(ErrorCode::kUnavailable,
                Concat("no daemon at ", socket_path, " within ", timeout.count(), " ms: ", reason,
                       "; start one with: zerod --socket ", socket_path));
  }
  return channel;
}

Stream::Stream(const std::shared_ptr<grpc::Channel>& channel, StreamListener& listener)
    : listener_(listener), stub_(v1::Worker::NewStub(channel)) {
  stub_->async()->Session(&context_, this);
  // Writes start outside of reactions; the hold keeps gRPC from ending the call between two.
  AddHold();
  StartRead(&incoming_);
  StartCall();
}

Stream::~Stream() {
  context_.TryCancel();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_; });
}

void Stream::Send(v1::WorkerMessage message) {
  {
    const std::lock_guard lock(mutex_);
    if (!reading_ || finishing_) return;
    outbox_.push_back(std::move(message));
  }
  Advance();
}

void Stream::Finish(std::chrono::milliseconds timeout) {
  {
    const std::lock_guard lock(mutex_);
    finishing_ = true;
  }
  Advance();
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [this] { return done_; });
}

void Stream::Advance() {
  enum class Action { kNone, kWrite, kHalfClose, kRelease };
  Action action = Action::kNone;
  {
    const std::lock_guard lock(mutex_);
    if (writing_ || released_) return;
    if (!reading_) {
      released_ = true;
      action = Action::kRelease;
    } else if (!outbox_.empty()) {
      writing_ = true;
      outgoing_ = std::move(outbox_.front());
      outbox_.pop_front();
      action = Action::kWrite;
    } else if (finishing_ && !half_closed_) {
      writing_ = true;
      half_closed_ = true;
      action = Action::kHalfClose;
    }
  }
  // Outside of the lock: gRPC may run a reaction before it returns.
  if (action == Action::kWrite) StartWrite(&outgoing_);
  if (action == Action::kHalfClose) StartWritesDone();
  if (action == Action::kRelease) RemoveHold();
}

void Stream::OnReadDone(bool ok) {
  if (ok) {
    listener_.OnMessage(incoming_);
    StartRead(&incoming_);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    reading_ = false;
  }
  Advance();
}

void Stream::OnWriteDone(bool /*ok*/) {
  // A failed write needs no answer here: the read fails too and ends the stream.
  {
    const std::lock_guard lock(mutex_);
    writing_ = false;
  }
  Advance();
}

void Stream::OnWritesDoneDone(bool ok) { OnWriteDone(ok); }

void Stream::OnDone(const grpc::Status& status) {
  listener_.OnEnd(status);
  // Notified under the lock: the waiter destroys this object as soon as it gets it.
  const std::lock_guard lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

}  // namespace zerod
