#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proto/contract/control_page.h"
#include "proto/contract/error.h"
#include "proto/contract/operation.h"
#include "proto/contract/plan.h"
#include "proto/contract/shared_memory.h"

namespace zerod {

enum class AttachMode { kCreate = 1, kAttach = 2, kAttachOrCreate = 3 };

/// Where and as whom to attach.
struct SessionOptions {
  // Behaviour
  std::string socket_path;  ///< control socket of this node's daemon; ZEROD_SOCKET
  int rank = 0;             ///< RANK
  int world_size = 1;       ///< WORLD_SIZE
  int local_rank = 0;       ///< LOCAL_RANK
  int tensor_parallel = 1;  ///< ranks of one tensor-parallel group
  std::string job_id = "default";
  AttachMode mode = AttachMode::kAttachOrCreate;
  std::string program = "worker";  ///< shown by `zeroctl sessions`
  /// Called from the session's own thread with warnings of the daemon (late ranks), and from the
  /// thread of a backward that failed. May be empty: then they are printed to stderr.
  std::function<void(const std::string&)> on_warning;

  // Performance
  int64_t window_bytes = 0;  ///< bound on leased or arriving layers; 0: none. Equal on all ranks
  int64_t cache_bytes = -1;  ///< bound on released, still resident layers; -1: the daemon's default
  int gradient_slots = 2;    ///< slots of the largest layer's size
  std::chrono::milliseconds connect_timeout{10'000};  ///< to reach the daemon
  std::chrono::milliseconds join_timeout{150'000};    ///< until all ranks of the world are attached

  /// Reads RANK, WORLD_SIZE, LOCAL_RANK, ZEROD_SOCKET, ZEROD_JOB from the environment; throws Error
  /// (kInvalidArgument) naming the variable and its value when one isn't a sensible number.
  static SessionOptions FromEnvironment();
};

/// What an attach found.
struct SessionInfo {
  uint64_t epoch = 0;
  std::string job_id;
  bool created = true;  ///< false: the job existed; its values and step stand
  uint64_t step = 0;    ///< steps taken before this attach
  Mesh mesh;
  int rank = 0;
  int node = 0;
  int node_count = 1;
  int gradient_slots = 2;
  int64_t window_bytes = 0;
  std::string private_state;  ///< as this rank gave it with the last step; empty if none
};

/// One worker's attach to its daemon: plain C++, no LibTorch, no gRPC in this header.
///
/// Submitting is one small message that waits for no answer; Flush() sends what was queued. Waiting
/// sleeps on the control page. Every wait has a deadline and ends with the attach: when the daemon
/// dies, a peer is lost or the ranks diverge, the pending and every later call throws Error with
/// the daemon's reason (kAborted, kUnavailable, kDeadlineExceeded).
///
/// Threads: all methods may be called from any thread, one at a time per object (an internal mutex
/// orders them); waits don't hold it. Owned by the caller; the destructor closes the stream without
/// Detach, which counts as the worker's death.
class Session {
 public:
  static std::unique_ptr<Session> Connect(const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const SessionInfo& info() const;

  /// Queues an operation, gives it the next ticket and returns that.
  uint64_t Submit(Operation operation);
  /// Sends everything queued. Wait* calls flush by themselves.
  void Flush();

  /// Registers the next layer and returns its plan. Blocks for one round trip.
  LayerPlan Register(const LayerSpec& spec);
  /// All layers are registered: waits until slots and optimizer state exist.
  void Seal();

  /// Waits for a ticket. `what` names it in the error, e.g. "gather of layer block3".
  void Wait(Queue queue, uint64_t ticket, const std::string& what);
  bool IsComplete(Queue queue, uint64_t ticket) const;
  /// Result of the newest step or scalar ticket, after Wait.
  StepRecord step_record() const;
  std::vector<double> scalar_values(int count) const;

  /// Maps memory of the attach. Regions are read-only and start with a header page; `data_bytes` is
  /// ChunkPlan::RegionBytes(), the mapping is kRegionHeaderBytes longer and starts with the header.
  Mapping MapRegion(int layer, int chunk, int64_t data_bytes);
  Mapping MapSlot(int slot);
  Mapping MapStage(int layer, int64_t size_bytes);

  /// Orderly end. With `drop` the job's state is dropped once all ranks have detached.
  void Detach(bool drop);

  /// Throws the reason if the attach is over.
  void ThrowIfAborted() const;

  /// Gives a warning of this process the way of the daemon's: to SessionOptions::on_warning.
  void Warn(const std::string& message) const;

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace zerod
