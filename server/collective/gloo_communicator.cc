#include "server/collective/gloo_communicator.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "proto/contract/operation.h"

namespace zerod {
namespace {

using gloo::transport::UnboundBuffer;
using std::chrono::milliseconds;

// No SegmentTag has this value (its top bits are zero), so a receive of it stays pending until the
// connection ends.
constexpr uint64_t kWatchSlot = ~uint64_t{0};
constexpr milliseconds kForever = std::chrono::hours(24 * 365);

milliseconds Remaining(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(left, milliseconds(1));
}

std::string Describe(const SegmentTag& tag) {
  return Concat("segment (", OperationKindName(static_cast<OperationKind>(tag.kind)), " ticket ",
                tag.ticket, ", layer ", tag.layer, ", chunk ", int{tag.chunk}, ", rank ", tag.rank,
                ")");
}

}  // namespace

GlooCommunicator::GlooCommunicator(const CommunicatorOptions& options, RendezvousStore& store)
    : options_(options), mesh_(options, store), watcher_([this] { Watch(); }) {}

GlooCommunicator::~GlooCommunicator() {
  {
    std::unique_lock lock(mutex_);
    closes_hard_ = failure_.has_value() || exchanges_ > 0;
    Fail(Aborted());
    idle_.wait(lock, [this] { return exchanges_ == 0; });
  }
  watcher_.join();
}

void GlooCommunicator::Exchange(std::span<const SendSegment> sends,
                                std::span<const ReceiveSegment> receives, milliseconds timeout) {
  Pending pending;
  pending.timeout = timeout;
  pending.deadline = Clock::now() + timeout;
  for (const ReceiveSegment& receive : receives) {
    AddSegment(pending, Direction::kReceive, receive.node, receive.tag, receive.data);
  }
  for (const SendSegment& send : sends) {
    // Gloo's buffers serve both directions and so aren't const.
    AddSegment(pending, Direction::kSend, send.node, send.tag,
               {const_cast<std::byte*>(send.data.data()), send.data.size()});
  }
  Enter(pending);
  struct Leaver {
    GlooCommunicator* communicator;
    Pending& pending;
    ~Leaver() { communicator->Leave(pending); }
  } leaver{this, pending};
  for (Segment& segment : pending.segments) Post(segment);
  for (size_t index = 0; index < pending.segments.size(); ++index) Wait(pending, index);
}

void GlooCommunicator::AddSegment(Pending& pending, Direction direction, int node,
                                  const SegmentTag& tag, std::span<std::byte> data) {
  ZEROD_CHECK(0 <= node && node < options_.node_count && node != options_.node, "node ",
              options_.node, " of ", options_.node_count, " exchanges with node ", node);
  if (data.empty()) return;
  pending.segments.push_back({direction, node, tag, mesh_.CreateBuffer(data.data(), data.size())});
}

void GlooCommunicator::Enter(Pending& pending) {
  std::lock_guard lock(mutex_);
  if (failure_) throw Error(*failure_);
  for (const Segment& segment : pending.segments) {
    if (lost_.contains(segment.node)) throw Lost(segment.node);
  }
  pending_.push_back(&pending);
  ++exchanges_;
}

void GlooCommunicator::Leave(Pending& pending) {
  {
    std::lock_guard lock(mutex_);
    pending_.remove(&pending);
  }
  // Waits until Gloo's thread has left the buffers; unfinished ones are never touched again.
  pending.segments.clear();
  std::lock_guard lock(mutex_);
  if (--exchanges_ == 0) idle_.notify_all();
}

void GlooCommunicator::Post(Segment& segment) {
  const size_t bytes = segment.buffer->size;
  try {
    if (segment.direction == Direction::kReceive) {
      segment.buffer->recv(segment.node, segment.tag.Value(), 0, bytes);
      counters_.received_bytes += bytes;
    } else {
      segment.buffer->send(segment.node, segment.tag.Value(), 0, bytes);
      counters_.sent_bytes += bytes;
    }
  } catch (const std::exception& exception) {
    ThrowFailure(segment, GlooText(exception));
  }
}

void GlooCommunicator::Wait(Pending& pending, size_t index) {
  Segment& segment = pending.segments[index];
  {
    std::lock_guard lock(mutex_);
    pending.waiting = index;
  }
  const auto wait = [&segment](milliseconds timeout) {
    return segment.direction == Direction::kReceive ? segment.buffer->waitRecv(timeout)
                                                    : segment.buffer->waitSend(timeout);
  };
  try {
    if (wait(Remaining(pending.deadline))) return;
    ThrowIfFailed();
    // The peer is gone. It may have left after its part was done; otherwise this ends all
    // connections.
    if (wait(milliseconds(1))) return;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& exception) {
    ThrowFailure(segment, GlooText(exception));
  }
  ThrowFailure(segment, "the wait ended early");
}

void GlooCommunicator::ThrowIfFailed() {
  std::lock_guard lock(mutex_);
  if (failure_) throw Error(*failure_);
}

// The first failure wins, whichever thread comes first: a time-out in one thread makes Gloo close
// the connections of all others.
void GlooCommunicator::ThrowFailure(const Segment& segment, const std::string& text) {
  std::lock_guard lock(mutex_);
  if (!failure_ && !FailIfOverdue()) {
    lost_.try_emplace(segment.node, text);
    Fail(Lost(segment.node));
  }
  throw Error(*failure_);
}

void GlooCommunicator::Abort() {
  std::lock_guard lock(mutex_);
  Fail(Aborted());
}

Error GlooCommunicator::Aborted() const {
  return Error(ErrorCode::kAborted, Concat("communicator ", options_.name, " was aborted"));
}

void GlooCommunicator::Fail(const Error& error) {
  if (failure_) return;
  failure_ = error;
  for (Pending* pending : pending_) {
    for (Segment& segment : pending->segments) {
      if (segment.direction == Direction::kReceive)
        segment.buffer->abortWaitRecv();
      else
        segment.buffer->abortWaitSend();
    }
  }
  if (watch_buffer_ != nullptr) watch_buffer_->abortWaitRecv();
}

bool GlooCommunicator::FailIfOverdue() {
  const auto now = Clock::now();
  for (const Pending* pending : pending_) {
    if (now < pending->deadline) continue;
    const Segment& segment = pending->segments[pending->waiting];
    const char* verb = segment.direction == Direction::kReceive ? " sent no " : " didn't take the ";
    Fail(Error(ErrorCode::kDeadlineExceeded,
               Concat("communicator ", options_.name, ": node ", segment.node, verb,
                      Describe(segment.tag), " within ", pending->timeout.count(), " ms")));
    return true;
  }
  return false;
}

Error GlooCommunicator::Lost(int node) const {
  return Error(ErrorCode::kUnavailable,
               Concat("communicator ", options_.name, ": the connection to node ", node,
                      " is gone: ", lost_.at(node)));
}

// Gloo tells a lost connection only to operations that haven't begun: a segment under way would
// wait until its time-out. So one receive per node stays pending for as long as the connection
// lives, and the thread that waits for them wakes the others. It also closes the connections after
// a failure: until then Gloo's thread would spin on data for which there is no buffer any more.
void GlooCommunicator::Watch() {
  while (true) {
    const std::unique_ptr<UnboundBuffer> buffer = mesh_.CreateBuffer(nullptr, 0);
    {
      std::lock_guard lock(mutex_);
      if (failure_) break;
      watch_buffer_ = buffer.get();
    }
    ArmWatch(*buffer);
    try {
      buffer->waitRecv(kForever);
    } catch (const std::exception&) {
      // Arming again finds out which connection it was.
    }
    std::lock_guard lock(mutex_);
    watch_buffer_ = nullptr;
  }
  bool closes_hard;
  {
    std::lock_guard lock(mutex_);
    closes_hard = closes_hard_;
  }
  if (closes_hard) mesh_.Close();
}

void GlooCommunicator::ArmWatch(UnboundBuffer& buffer) {
  for (int node = 0; node < options_.node_count; ++node) {
    if (node == options_.node) continue;
    {
      std::lock_guard lock(mutex_);
      if (failure_) return;
      if (lost_.contains(node)) continue;
    }
    try {
      buffer.recv(node, kWatchSlot, 0, 0);
    } catch (const std::exception& exception) {
      MarkLost(node, GlooText(exception));
    }
  }
}

void GlooCommunicator::MarkLost(int node, const std::string& text) {
  std::lock_guard lock(mutex_);
  if (failure_ || FailIfOverdue()) return;
  lost_.try_emplace(node, text);
  for (Pending* pending : pending_) {
    for (Segment& segment : pending->segments) {
      if (segment.node != node) continue;
      if (segment.direction == Direction::kReceive)
        segment.buffer->abortWaitRecv();
      else
        segment.buffer->abortWaitSend();
    }
  }
}

}  // namespace zerod
