#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <grpcpp/support/status.h>

#include "proto/peer.pb.h"

namespace zerod {

class Link;

/// What a link tells its owner, from gRPC's threads and without locks of the link.
class LinkEvents {
 public:
  virtual ~LinkEvents() = default;
  /// One message; the next is read only after ReadNext().
  virtual void OnLinkMessage(const std::shared_ptr<Link>& link, v1::PeerMessage message) = 0;
  /// The last event. `refused`: the two ends don't belong together. gRPC's thread hands its
  /// reference over: the owner lets the link go on a thread of its own.
  virtual void OnLinkEnd(std::shared_ptr<Link> link, const std::string& reason, bool refused) = 0;
};

/// One stream between two daemons, seen from either end. Sends in order, reads one message at a
/// time. Keeps itself alive until its end was told. Thread-safe.
class Link : public std::enable_shared_from_this<Link> {
 public:
  using Clock = std::chrono::steady_clock;

  /// `called_node`: the node that this end called, or nothing if it was called.
  Link(LinkEvents& events, std::optional<int> called_node);
  virtual ~Link() = default;

  /// Queues the message. When more than kQueueBytesMax wait, the link ends: the peer doesn't read.
  /// Does nothing after the end.
  void Send(std::shared_ptr<const v1::PeerMessage> message);
  void ReadNext();

  /// Ends the link when everything queued was sent.
  void Finish();
  /// Ends the link now; what is queued is lost. The called side passes the status on to the caller,
  /// which takes FAILED_PRECONDITION for a refusal.
  void Close(grpc::StatusCode code, const std::string& reason);

  const std::optional<int> called_node;
  const Clock::time_point start = Clock::now();

  static constexpr size_t kQueueBytesMax = 64 << 20;

 protected:
  // The two ends of a stream differ in these. Called with mutex_ held.
  virtual void StartReadOf(v1::PeerMessage* message) = 0;
  virtual void StartWriteOf(const v1::PeerMessage* message) = 0;
  virtual void StartFinish() = 0;  // nothing is queued
  /// Called once. The stream ends as soon as nothing is under way. An OK status means that the
  /// other end has ended it.
  virtual void StartEnd(const grpc::Status& status, bool writing) = 0;

  // What the streams report.
  void ReadDone(bool ok);
  void WriteDone(bool ok);
  void Done(const std::string& reason, bool refused);

  /// Called after each write of a link that has ended, with mutex_ held.
  virtual void WriteEndedLate() {}

  void EndLocked(const grpc::Status& status);

  std::mutex mutex_;
  std::shared_ptr<Link> self_;  // set while gRPC knows the stream

 private:
  LinkEvents& events_;
  std::deque<std::shared_ptr<const v1::PeerMessage>> queue_;  // front: being written
  size_t queue_bytes_ = 0;
  bool writing_ = false;
  bool finishing_ = false;
  bool ended_ = false;
  std::string local_reason_;  // why this end closed the link; empty if it didn't
  bool local_refusal_ = false;
  v1::PeerMessage incoming_;
};

}  // namespace zerod
