#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/collective/communicator.h"
#include "server/engine/lane.h"
#include "server/engine/layer_exchange.h"
#include "server/engine/member.h"
#include "server/engine/options.h"
#include "server/engine/order_check.h"
#include "server/engine/peer_link.h"
#include "server/engine/residency.h"
#include "server/engine/shard_work.h"
#include "server/engine/step_decision.h"
#include "server/store/job.h"

namespace zerod {

/// One epoch: the attached workers of this node and what they submit, from Welcome until the last
/// has left or something ends it for all.
///
/// A ticket goes forward only: submitted by each local rank (order check, leases) -> dispatched
/// once all local ranks have it -> gated until all nodes have compared it (reduce, step, scalar,
/// read, write; gathers don't wait) -> run by the lanes -> completed on the control pages.
///
/// Threads: all public methods but Teardown run under the engine's lock and never block. Lanes take
/// the lock to report.
class Group {
 public:
  struct Setup {
    const EngineOptions* options = nullptr;
    absl::Mutex* mutex = nullptr;  ///< the engine's
    Topology topology;
    uint64_t epoch = 0;
    Job* job = nullptr;
    bool created = true;
    PeerLink* link = nullptr;                      ///< null on a single node
    std::vector<std::unique_ptr<Member>> members;  ///< by local rank
    std::unique_ptr<Communicator> gathers;         ///< null on a single node
    std::unique_ptr<Communicator> reduces;
    int64_t cache_bytes = 0;
    int gradient_slots = 2;
  };
  explicit Group(Setup setup);
  ~Group();

  void Welcome();
  void Submit(Member& member, std::vector<Operation> operations);
  void Leave(Member& member, bool drop);
  void Lose(Member& member, const std::string& reason);
  void OnPeerMessage(int node, const PeerMessage& message);
  void OnPeerLost(int node, const std::string& reason);
  /// Ends the epoch for all ranks of all nodes.
  void Abort(const Error& error);
  /// Watchdog: warns of late ranks, ends the epoch at the deadline.
  void CheckLateness(std::chrono::steady_clock::time_point now);
  /// This process stood still for so long (it was stopped, or the machine slept): nobody was late.
  void ExcusePause(std::chrono::steady_clock::duration pause);

  /// Nothing more will happen: Teardown may be called.
  bool over() const {
    mutex_.AssertHeld();
    return over_;
  }
  bool aborting() const {
    mutex_.AssertHeld();
    return aborting_;
  }
  /// Whether the job ends with the group: asked for when all left in good order, or not worth
  /// keeping: its first workers were cut off before the first step, perhaps amid its initial
  /// values.
  bool DropsJob() const;
  /// Without the lock: stops the lanes (decided updates are finished) and the communicators.
  void Teardown();
  /// After Teardown, under the lock: nothing of an unfinished step stays.
  void DropUnfinishedStep();

  Job& job() { return job_; }
  uint64_t epoch() const { return epoch_; }
  const std::vector<std::unique_ptr<Member>>& members() const { return members_; }
  const Communicator* gathers() const { return gather_communicator_.get(); }
  const Communicator* reduces() const { return reduce_communicator_.get(); }
  uint64_t cache_hits() const {
    mutex_.AssertHeld();
    return cache_hits_;
  }
  uint64_t gather_count() const {
    mutex_.AssertHeld();
    return gather_count_;
  }
  uint64_t reduce_count() const {
    mutex_.AssertHeld();
    return reduce_count_;
  }
  int64_t resident_bytes() const {
    mutex_.AssertHeld();
    return residency_ ? residency_->resident_bytes() : 0;
  }
  int gradient_slots() const { return gradient_slots_; }
  /// Fresh staging memory of a member for a layer.
  SharedMemory& MakeStage(Member& member, int layer);

 private:
  struct Ticket {  // submitted by some local ranks, not yet by all
    int submitted = 0;
    std::vector<Operation> operations;                  // by local rank
    std::vector<std::shared_ptr<SharedMemory>> stages;  // by local rank; of reads and writes
  };
  struct Dispatched {  // submitted by all local ranks
    uint64_t ticket = 0;
    std::vector<Operation> operations;  // by local rank
    std::vector<std::shared_ptr<SharedMemory>> stages;
    // Of a step:
    std::vector<int> forward_order;  // layers in the order of their first gather
    bool on_node_lane = false;       // its work there is posted
    uint64_t node_lane_items = 0;    // that must be done before it is decided
    bool IsForNodeLane() const;      // has work for the node's lane that isn't posted yet
    const Operation& first() const { return operations.front(); }
  };
  /// How far one rank may be ahead of another: bounds what is kept of operations.
  static constexpr uint64_t kOperationsAheadMax = 1 << 16;
  struct PendingStep {
    Dispatched operation;
    bool contributed = false;
  };

  // group_fault.cc: what a rank may not submit
  std::optional<Error> FindFault(const Member& member, const Operation& operation) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Error> FindLayerFault(const Member& member, const Operation& operation) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // group.cc: submission
  bool Admit(Member& member, Operation& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ApplyToMember(Member& member, const Operation& operation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RegisterLayer(Member& member, const Operation& operation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendProgress() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteGather(int layer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Dispatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunGated() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool GateIsOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(Dispatched operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Describe(const Fingerprint& fingerprint) const;

  // group_peer.cc
  void Take(int node, const PeerMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeProgress(int node, const Progress& progress) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckValues(int node, size_t count) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckContribution(int node, const StepContribution& step) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // group_data.cc: gathers, releases, reads, writes, seal
  void PublishLocalGathers(Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PublishAllLocalGathers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Publish(Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostToNodeLane(std::function<void()> task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunOnNodeLane(const Operation& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostStepToNodeLane(Dispatched& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GatherOnNodeLane(uint64_t ticket, int layer, uint64_t version);
  void EvictOnNodeLane(const std::vector<int>& layers);
  void Seal(const Dispatched& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostData(Dispatched operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DataOnNodeLane(const Dispatched& operation);
  void CompleteAll(Queue queue, uint64_t ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // group_step.cc: reduce, step, scalar
  void PostReduce(const Dispatched& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReduceOnLane(int local_rank, LayerStore& layer, const ReduceWork& work);
  void TryContribute() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  StepContribution MakeContribution() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TryDecide() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MarkActive(const std::vector<StepContribution>& parts, bool apply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PublishStep(const StepDecision& decision) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostUpdates(const StepDecision& decision) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateOnLane(int local_rank, LayerStore& layer, const UpdateWork& work);
  void RecordApplied() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ContributeScalar(const Dispatched& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TryCompleteScalar() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // group_end.cc
  void CheckSettled() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Finish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t SubmittedStep() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t ContributedStep() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t OwnHorizon() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LowerHorizon() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Ends the epoch because this node can't go on: a step to which it hasn't contributed is
  /// dropped although all ranks submitted it.
  void Break(const Error& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WarnLate(const OrderCheck::Late& late) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Error LateError(const OrderCheck::Late& late) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void Broadcast(decltype(PeerMessage::body) body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int LocalRanks() const { return topology_.LocalRanks(); }
  ShardContext ContextOf(int local_rank);
  /// Runs lane work; an error ends the epoch. Returns whether there was none.
  template <typename Work>
  bool Guarded(Work&& work);

  const EngineOptions& options_;
  absl::Mutex& mutex_;
  const Topology topology_;
  const uint64_t epoch_;
  Job& job_;
  const bool created_;
  PeerLink* const link_;
  const int64_t cache_bytes_;
  const int gradient_slots_;
  const OptimizerKernels& kernels_;
  const bool uses_node_lane_;  // gathers need work on this node, not only publishing

  std::vector<std::unique_ptr<Member>> members_;
  std::unique_ptr<Communicator> gather_communicator_;
  std::unique_ptr<Communicator> reduce_communicator_;
  std::vector<ReduceBuffers> reduce_buffers_;  // by local rank, each for its lane
  LayerExchange exchange_;
  OrderCheck order_ ABSL_GUARDED_BY(mutex_);
  std::optional<Residency> residency_ ABSL_GUARDED_BY(mutex_);  // from Seal on

  std::map<int, uint64_t> peer_tickets_
      ABSL_GUARDED_BY(mutex_);                 // node -> newest operation that it described
  Progress outgoing_ ABSL_GUARDED_BY(mutex_);  // fingerprints not yet sent
  std::deque<Ticket> tickets_ ABSL_GUARDED_BY(mutex_);  // of first_ticket_, first_ticket_ + 1, ...
  uint64_t first_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
  std::deque<Dispatched> gated_ ABSL_GUARDED_BY(mutex_);
  int gated_for_node_lane_ ABSL_GUARDED_BY(mutex_) = 0;  // of them: gathers must not overtake these
  bool running_gated_ ABSL_GUARDED_BY(mutex_) = false;
  int data_outstanding_ ABSL_GUARDED_BY(mutex_) =
      0;  // reads and writes on the node's lane: nothing gated passes them
  std::map<uint64_t, int> unwritten_
      ABSL_GUARDED_BY(mutex_);  // submitted writes that aren't done: ticket, layer
  std::vector<int> forward_order_
      ABSL_GUARDED_BY(mutex_);  // layers gathered since the last step, first gather first

  uint64_t node_lane_posted_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t node_lane_done_ ABSL_GUARDED_BY(mutex_) = 0;
  int reduces_outstanding_ ABSL_GUARDED_BY(mutex_) = 0;  // lane tasks
  int updates_outstanding_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, int> reduce_lanes_left_ ABSL_GUARDED_BY(mutex_);
  std::optional<PendingStep> pending_step_ ABSL_GUARDED_BY(mutex_);
  uint64_t decided_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::map<int, StepContribution>> step_contributions_
      ABSL_GUARDED_BY(mutex_);  // ticket, node
  std::optional<Dispatched> pending_scalar_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::map<int, ScalarContribution>> scalar_contributions_
      ABSL_GUARDED_BY(mutex_);

  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> cancelled_{false};  // read by lanes without the lock
  bool aborting_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) =
      false;  // what this node hasn't contributed to can't be decided any more
  std::optional<Error> error_ ABSL_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point abort_began_ ABSL_GUARDED_BY(mutex_);
  std::map<int, uint64_t> horizons_ ABSL_GUARDED_BY(mutex_);  // node -> step it can still finish
  std::set<int> lost_ ABSL_GUARDED_BY(mutex_);                // nodes
  std::map<int, EndNotice> ends_ ABSL_GUARDED_BY(mutex_);     // node -> all its ranks have left
  bool drop_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t warned_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t cache_hits_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t gather_count_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t reduce_count_ ABSL_GUARDED_BY(mutex_) = 0;

  // Last: their threads use everything above.
  std::vector<std::unique_ptr<Lane>> lanes_;  // by local rank
  std::unique_ptr<Lane> node_lane_;
};

}  // namespace zerod
