#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace zerod {

/// Names one segment on the wire. A receive only ever matches a send of the same tag, so a segment
/// of another layer, ticket or rank can't be taken for it.
struct SegmentTag {
  uint64_t ticket = 0;  ///< < 2^32
  uint16_t layer = 0;   ///< < 2^12
  uint8_t chunk = 0;    ///< < 4
  uint8_t kind = 0;     ///< OperationKind, < 16
  /// Global rank whose shard the segment is (gather, write) or is summed for (reduce). < 2^12.
  uint16_t rank = 0;

  /// Value of 62 bits that is different for different tags. A field out of range is a bug: aborts.
  uint64_t Value() const;
};

struct SendSegment {
  int node = 0;
  SegmentTag tag;
  std::span<const std::byte> data;
};

struct ReceiveSegment {
  int node = 0;
  SegmentTag tag;
  std::span<std::byte> data;  ///< received in place; both sides know the size from the plan
};

/// Bytes that crossed between nodes, counted where they are handed to the transport.
struct TransportCounters {
  std::atomic<uint64_t> sent_bytes{0};
  std::atomic<uint64_t> received_bytes{0};
};

/// Point-to-point transport among the nodes of one epoch, for one kind of traffic (gathers and
/// reduces have one each, so that neither waits behind the other).
class Communicator {
 public:
  virtual ~Communicator() = default;

  /// Sends and receives all segments; returns when the receives are complete and the sent memory
  /// may be changed. May be called from several threads at once with different tags. Throws Error:
  /// kAborted after Abort(), kUnavailable when a peer is gone, kDeadlineExceeded after `timeout`
  /// (which ends the communicator: all its connections close).
  virtual void Exchange(std::span<const SendSegment> sends,
                        std::span<const ReceiveSegment> receives,
                        std::chrono::milliseconds timeout) = 0;

  /// Ends all pending and future exchanges with kAborted. Thread-safe, returns at once.
  virtual void Abort() = 0;

  virtual const TransportCounters& counters() const = 0;
};

/// Key-value store that all nodes of an epoch share while they connect. Get blocks until the key is
/// there or throws Error (kDeadlineExceeded, kAborted). Thread-safe.
class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;
  virtual void Set(const std::string& key, const std::string& value) = 0;
  virtual std::string Get(const std::string& key, std::chrono::milliseconds timeout) = 0;
};

struct CommunicatorOptions {
  int node = 0;
  int node_count = 1;
  std::string name;  ///< "gather", "reduce": prefix of its keys in the store
  std::string host;  ///< local address to listen on
  std::chrono::milliseconds timeout{30'000};  ///< for connecting
};

/// The transport over Gloo (TCP). Connects to all nodes; throws Error kUnavailable naming the node
/// and address, kDeadlineExceeded.
std::unique_ptr<Communicator> MakeGlooCommunicator(const CommunicatorOptions& options,
                                                   RendezvousStore& store);

}  // namespace zerod
