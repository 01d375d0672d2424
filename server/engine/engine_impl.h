#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/engine.h"
#include "server/engine/group.h"
#include "server/engine/peer_store.h"

namespace zerod {

/// State of the engine. One lock guards jobs, pending attaches and the group; one control thread
/// forms groups, tears them down and watches for late ranks, so that nobody else blocks.
class Engine::Impl {
 public:
  explicit Impl(const EngineOptions& options);
  ~Impl();

  void SetPeerLink(PeerLink* link);
  uint64_t Attach(const AttachRequest& request, std::shared_ptr<WorkerEvents> events);
  void Submit(uint64_t attach_id, uint64_t epoch, std::vector<Operation> operations);
  void Detach(uint64_t attach_id, bool drop);
  void Disconnect(uint64_t attach_id, const std::string& reason);
  FileDescriptor OpenMemory(const DescriptorRequest& request, int64_t& size_bytes);
  void Stop(const std::string& reason);

  StatusReport Status() const;
  std::vector<JobReport> Jobs() const;
  void DropJob(const std::string& job_id);
  std::vector<LayerReport> Layers(const std::string& job_id) const;
  std::vector<ShardReport> Shards(const std::string& job_id, bool checksums) const;
  std::vector<MemoryReport> Memory(const std::string& job_id) const;
  std::vector<SessionReport> Sessions() const;
  std::string ResolveJob(const std::string& job_id) const;

  void OnPeerMessage(int node, const PeerMessage& message);
  void OnPeerLost(int node, const std::string& reason);
  void OnMembership(const std::vector<int>& ranks);

 private:
  using Clock = std::chrono::steady_clock;

  // engine.cc: attaches
  void CheckRequest(const AttachRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckPlace(const AttachRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckLikeOthers(const AttachRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Who has this rank; nullptr if nobody.
  const Member* HolderOf(int local_rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Admit(std::unique_ptr<Member> member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Admits those whose rank has become free and refuses those who have waited long enough.
  void AdmitSuccessors(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Member* Find(uint64_t attach_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasActiveGroup() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // engine_control.cc: agreeing with the other nodes, ending groups
  void ControlLoop();
  bool SomethingToDo() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ProposeIfComplete() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Deliver(int node, const Proposal& proposal) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DecideIfComplete() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Accept(const Decision& decision) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsForming() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return decision_ && decision_->accepted;
  }
  /// The group that is being formed can't come to be.
  void SpoilForming(const Error& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnPeerMessageEarly(int node, const PeerMessage& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndGroup();
  void WatchPending(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string MissingText() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FaultPending(const Error& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Withdraw(const std::string& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // engine_form.cc: forming groups
  void FormGroup();
  Group::Setup PrepareGroup(const Decision& decision) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Job& PrepareJob(const Decision& decision) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ConnectCommunicators(Group::Setup& setup, std::shared_ptr<PeerStore> store);
  void StartGroup(Group::Setup setup) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveUpForming(const Decision& decision, const Error& cause);

  // engine_report.cc
  void AddToTotals(const Group& group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void AddTraffic(const Group& group, StatusReport& report);
  const Job& JobOf(const std::string& job_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsAttached(const std::string& job_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string ResolveLocked(const std::string& job_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const EngineOptions options_;
  mutable absl::Mutex mutex_;
  PeerLink* link_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Topology topology_ ABSL_GUARDED_BY(mutex_);  // ranks_per_node is empty until all are connected
  std::map<std::string, std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mutex_);
  std::mt19937_64 tokens_ ABSL_GUARDED_BY(mutex_){std::random_device{}()};
  uint64_t next_attach_id_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t epoch_seen_ ABSL_GUARDED_BY(mutex_) = 0;

  std::vector<std::unique_ptr<Member>> successors_ ABSL_GUARDED_BY(mutex_);  // rank still taken
  std::map<int, std::unique_ptr<Member>> pending_ ABSL_GUARDED_BY(mutex_);   // by local rank
  Clock::time_point pending_warned_ ABSL_GUARDED_BY(mutex_);
  bool proposed_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t proposal_number_ ABSL_GUARDED_BY(mutex_) = 0;       // of the newest one
  std::map<int, Proposal> proposals_ ABSL_GUARDED_BY(mutex_);  // node 0: by node
  std::optional<Decision> decision_
      ABSL_GUARDED_BY(mutex_);  // accepted: the group is being formed; else one is ending
  std::map<int, std::unique_ptr<Member>> forming_ ABSL_GUARDED_BY(mutex_);  // by local rank
  std::vector<std::shared_ptr<WorkerEvents>> forming_events_ ABSL_GUARDED_BY(mutex_);
  std::optional<Error> forming_failure_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<PeerStore> store_ ABSL_GUARDED_BY(mutex_);  // of the group being formed
  std::vector<std::pair<int, PeerMessage>> early_ ABSL_GUARDED_BY(mutex_);  // for a coming epoch
  std::unique_ptr<Group> group_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Member*> attached_ ABSL_GUARDED_BY(mutex_);  // by attach id, of group_

  StatusReport totals_ ABSL_GUARDED_BY(mutex_);  // traffic of ended groups
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread control_;  // last: uses everything above
};

}  // namespace zerod
