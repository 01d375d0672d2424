#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/descriptor.h"
#include "proto/contract/operation.h"
#include "server/engine/events.h"
#include "server/engine/options.h"
#include "server/engine/peer_link.h"
#include "server/engine/report.h"

namespace zerod {

/// A worker's wish to attach; comes from the Hello message.
struct AttachRequest {
  std::string job_id;
  int mode = 3;  ///< 1 create, 2 attach, 3 attach or create
  int rank = 0;  ///< global
  int world_size = 1;
  int local_rank = 0;
  int tensor_parallel = 1;
  int64_t pid = 0;
  std::string program;
  int64_t window_bytes = 0;
  int64_t cache_bytes = -1;
  int gradient_slots = 2;
};

/// The node's engine: jobs, the attached group and its lanes. The rooms rpc and cluster submit to
/// it from their threads; nothing here waits for a worker or a peer while it holds the engine's
/// lock.
class Engine : public PeerEvents {
 public:
  explicit Engine(const EngineOptions& options);
  ~Engine() override;

  /// Before the first attach; null for a single node (membership is then complete at once). The
  /// link must outlive the engine's Stop().
  void SetPeerLink(PeerLink* link);

  /// Begins an attach and returns its id; the answer is OnWelcome or OnFault. Throws Error when the
  /// request itself is wrong: rank out of range, world size that isn't the cluster's, a rank that
  /// is taken (by which process), another attached job.
  uint64_t Attach(const AttachRequest& request, std::shared_ptr<WorkerEvents> events);

  /// Operations of one attach, in ticket order. Errors arrive by OnFault.
  void Submit(uint64_t attach_id, uint64_t epoch, std::vector<Operation> operations);

  /// Orderly end; answered by OnDetached.
  void Detach(uint64_t attach_id, bool drop);

  /// The stream broke: the worker is gone. Its leases are freed, the unfinished step is dropped on
  /// all ranks unless this rank had submitted it. Does nothing for an ended attach.
  void Disconnect(uint64_t attach_id, const std::string& reason);

  /// Memory of an attach, by the token of its welcome. Throws Error (kNotFound, ...).
  FileDescriptor OpenMemory(const DescriptorRequest& request, int64_t& size_bytes);

  /// Ends the attached group, if any, with this reason; used when the daemon is told to stop.
  void Stop(const std::string& reason);

  // For zeroctl.
  StatusReport Status() const;
  std::vector<JobReport> Jobs() const;
  void DropJob(const std::string& job_id);
  std::vector<LayerReport> Layers(const std::string& job_id) const;
  std::vector<ShardReport> Shards(const std::string& job_id, bool checksums) const;
  std::vector<MemoryReport> Memory(const std::string& job_id) const;
  std::vector<SessionReport> Sessions() const;
  /// The job that an empty name means: the attached one, else the only one. Throws Error kNotFound.
  std::string ResolveJob(const std::string& job_id) const;

  // PeerEvents
  void OnPeerMessage(int node, const PeerMessage& message) override;
  void OnPeerLost(int node, const std::string& reason) override;
  void OnMembership(const std::vector<int>& ranks) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace zerod
