#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "proto/contract/control_page.h"
#include "proto/contract/shared_memory.h"
#include "server/engine/engine.h"
#include "server/engine/events.h"

namespace zerod {

/// One attached worker: its wish, its way back and the memory that was made for this attach. Write
/// access can't be revoked from a process that still runs, so all of it is fresh for every attach.
/// Guarded by the engine's lock but for the bytes of slots and stage, which lanes read.
struct Member {
  enum class State { kActive, kLeft, kDead };
  struct PendingGather {
    uint64_t ticket = 0;
    int layer = 0;
    uint64_t version = 0;
    bool released = false;  ///< given back before it was published
  };

  uint64_t attach_id = 0;
  uint64_t token = 0;
  int local_rank = 0;
  int rank = 0;
  AttachRequest request;
  std::shared_ptr<WorkerEvents> events;
  std::chrono::steady_clock::time_point attached_at;

  SharedMemory page_memory;
  std::vector<SharedMemory> slots;
  /// Shared with the reads and writes that were submitted on it: the worker may ask for the next
  /// one while they run.
  std::shared_ptr<SharedMemory> stage;
  int stage_layer = -1;

  State state = State::kActive;
  uint64_t last_ticket = 0;
  uint64_t last_step_ticket = 0;
  uint64_t version = 0;  ///< the job's step when all submitted steps are taken
  OperationKind last_kind = OperationKind::kRegister;
  int registered = 0;                 ///< layers announced so far
  std::vector<int> leases;            ///< by layer
  std::deque<PendingGather> gathers;  ///< submitted, not yet published, in ticket order

  ControlPage& page() const { return *reinterpret_cast<ControlPage*>(page_memory.data()); }
  int LeaseCount() const {
    int count = 0;
    for (int lease : leases) count += lease;
    return count;
  }
};

}  // namespace zerod
