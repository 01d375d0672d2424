#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gloo/transport/unbound_buffer.h>

#include "proto/contract/error.h"
#include "server/collective/communicator.h"
#include "server/collective/gloo_mesh.h"

namespace zerod {

/// Communicator over a GlooMesh; node_count >= 2.
///
/// The communicator lives until its first failure: an abort, a time-out, or a peer lost during an
/// exchange with it. That failure is what every later exchange throws. A peer that leaves without
/// an exchange pending only ends exchanges with itself.
///
/// When Exchange has returned or thrown, Gloo doesn't touch the memory of its segments any more.
/// The destructor waits for exchanges in other threads, which it aborts.
class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(const CommunicatorOptions& options, RendezvousStore& store);
  ~GlooCommunicator() override;

  void Exchange(std::span<const SendSegment> sends, std::span<const ReceiveSegment> receives,
                std::chrono::milliseconds timeout) override;
  void Abort() override;
  const TransportCounters& counters() const override { return counters_; }

 private:
  using Clock = std::chrono::steady_clock;

  enum class Direction { kSend, kReceive };

  struct Segment {
    Direction direction;
    int node;
    SegmentTag tag;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  };

  struct Pending {
    std::vector<Segment> segments;  // receives first
    Clock::time_point deadline;
    std::chrono::milliseconds timeout;
    size_t waiting = 0;  // index of the segment that its thread waits for; under mutex_
  };

  void AddSegment(Pending& pending, Direction direction, int node, const SegmentTag& tag,
                  std::span<std::byte> data);
  void Enter(Pending& pending);
  void Leave(Pending& pending);
  void Post(Segment& segment);
  void Wait(Pending& pending, size_t index);
  void ThrowIfFailed();
  [[noreturn]] void ThrowFailure(const Segment& segment, const std::string& text);

  void Watch();
  void ArmWatch(gloo::transport::UnboundBuffer& buffer);
  void MarkLost(int node, const std::string& text);

  // Those below need mutex_.
  void Fail(const Error& error);
  bool FailIfOverdue();
  Error Lost(int node) const;
  Error Aborted() const;

  const CommunicatorOptions options_;
  TransportCounters counters_;
  GlooMesh mesh_;

  std::mutex mutex_;
  std::condition_variable idle_;
  std::list<Pending*> pending_;      // registered: their buffers may be woken
  int exchanges_ = 0;                // including those that are leaving
  std::optional<Error> failure_;     // the first one
  std::map<int, std::string> lost_;  // nodes whose connection is gone, and why
  gloo::transport::UnboundBuffer* watch_buffer_ = nullptr;
  // False for a destruction in peace: data on its way to a peer that still receives must arrive.
  bool closes_hard_ = true;

  std::thread watcher_;
};

}  // namespace zerod
