#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "proto/contract/error.h"
#include "proto/contract/operation.h"
#include "server/collective/communicator.h"

namespace zerod {

/// A node whose local ranks are all attached proposes to node 0 to form the group.
struct Proposal {
  uint64_t number = 0;  ///< of this node's proposals; the decision repeats it
  std::string job_id;
  int mode = 3;  ///< 1 create, 2 attach, 3 attach or create
  bool exists = false;
  uint64_t plan_hash = 0;
  uint64_t step = 0;
  uint64_t epoch_seen = 0;
  int64_t window_bytes = 0;
  int64_t cache_bytes = 0;
  int gradient_slots = 2;
  int tensor_parallel = 1;
  bool withdrawn = false;  ///< a worker left before the decision
  std::string reason;
};

/// Node 0's answer, the same to all nodes.
struct Decision {
  std::vector<uint64_t> numbers;  ///< by node: of the proposal that this answers
  std::string job_id;
  bool accepted = false;
  bool created = false;
  uint64_t new_epoch = 0;
  ErrorCode code = ErrorCode::kFailedPrecondition;
  std::string message;
};

struct RankedFingerprint {
  Fingerprint fingerprint;
  int rank = 0;  ///< global rank that submitted it first on its node
};

/// Fingerprints in the order submitted and the newest ticket of each local rank of the sender.
struct Progress {
  std::vector<RankedFingerprint> fingerprints;
  std::vector<uint64_t> last_tickets;
};

/// What one node knows when all its ranks have submitted a step and all reduces before are done.
struct StepContribution {
  uint64_t ticket = 0;
  std::vector<double> sum_squares;  ///< per local rank: of its shards of the summed gradients
  std::vector<double> values;       ///< local ranks x values, rank-major
  /// Per layer that was reduced since the last step: which tensors got a gradient on this node.
  std::vector<std::pair<int, std::vector<bool>>> active;
};

struct ScalarContribution {
  uint64_t ticket = 0;
  std::vector<double> values;  ///< local ranks x values, rank-major
};

/// The epoch ends. Each node says which step it can still finish, and again should it become less;
/// the smallest of these is finished everywhere, everything later is dropped.
struct AbortNotice {
  uint64_t horizon_ticket = 0;  ///< newest step that all local ranks had submitted,
                                ///< or it has contributed to if it can't go on; 0: none
  ErrorCode code = ErrorCode::kAborted;
  std::string message;
};

/// All local ranks have detached in good order.
struct EndNotice {
  bool drop = false;
};

/// An entry of the rendezvous store through which communicators of one epoch find each other.
struct StoreEntry {
  std::string key;
  std::string value;
};

struct PeerMessage {
  uint64_t epoch = 0;
  std::variant<Proposal, Decision, StoreEntry, Progress, StepContribution, ScalarContribution,
               AbortNotice, EndNotice>
      body;
};

/// What the cluster tells the engine. Called from cluster threads, never with cluster locks held.
class PeerEvents {
 public:
  virtual ~PeerEvents() = default;
  virtual void OnPeerMessage(int node, const PeerMessage& message) = 0;
  virtual void OnPeerLost(int node, const std::string& reason) = 0;
  /// All nodes are connected; `ranks` holds each node's number of local ranks, in node order.
  /// Called again after a lost peer came back.
  virtual void OnMembership(const std::vector<int>& ranks) = 0;
};

/// The other daemons as the engine sees them. Messages between two nodes arrive in order; sending
/// never blocks and never throws (a lost peer is reported by OnPeerLost). Thread-safe.
class PeerLink {
 public:
  virtual ~PeerLink() = default;
  virtual void Send(int node, const PeerMessage& message) = 0;  ///< node != own
  virtual void Broadcast(const PeerMessage& message) = 0;       ///< to all other nodes
  /// What the membership waits for, e.g. "node 1 at host:7000: the name doesn't resolve yet"; empty
  /// when all are connected.
  virtual std::string WaitingFor() const = 0;
  /// Address on which this node's communicators listen, e.g. "127.0.0.1".
  virtual std::string DataHost() const = 0;
};

}  // namespace zerod
