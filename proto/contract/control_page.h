#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>

#include "proto/contract/operation.h"

namespace zerod {

/// What the daemon tells a worker about a decided step.
struct StepRecord {
  uint64_t ticket = 0;
  uint64_t step = 0;     ///< number of steps taken, this one included
  double grad_norm = 0;  ///< of the gradient after division, before clipping
  uint32_t skipped = 0;  ///< 1: the norm wasn't finite, nothing was updated
  uint32_t value_count = 0;
  double values[kValuesMax] = {};  ///< sums over all ranks
};

/// The page that a daemon shares with one worker (a memfd, fresh for every attach). Completion
/// travels here, not by RPC. Layout is part of the protocol version.
///
/// The daemon stores results, then the counter (release), then bumps the doorbell and wakes. A
/// waiter reads doorbell, counters and abort flag (acquire), then sleeps on the doorbell value it
/// read, so no wake-up is lost. Waking is a process-shared futex: std::atomic::wait waits
/// process-privately and would never be woken.
struct ControlPage {
  static constexpr uint32_t kMagic = 0x7a64'6370;  // "zdcp"

  uint32_t magic = kMagic;
  uint32_t protocol_version = kProtocolVersion;
  uint64_t epoch = 0;
  alignas(64) std::atomic<uint32_t> doorbell{0};
  std::atomic<uint32_t> aborted{0};  ///< set once: the attach is over, the reason comes by stream
  alignas(64) std::atomic<uint64_t> completed[kQueueCount] = {};
  alignas(64) StepRecord step;  ///< of the newest completed step ticket
  uint64_t scalar_ticket = 0;   ///< of the newest completed scalar ticket
  double scalar_values[kValuesMax] = {};
};
static_assert(sizeof(ControlPage) <= 4096);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

inline constexpr int64_t kControlPageBytes = 4096;

/// Daemon: marks `ticket` of `queue` complete and wakes the waiters. Results must be stored before.
void Complete(ControlPage& page, Queue queue, uint64_t ticket);

/// Either side: ends the attach for every waiter.
void Abort(ControlPage& page);

/// Either side: wakes all waiters so that they look again.
void Ring(ControlPage& page);

enum class WaitResult { kDone, kAborted, kTimedOut };

/// Worker: sleeps until `ticket` of `queue` is complete, the attach is aborted or the deadline has
/// passed. Completed wins over aborted.
WaitResult WaitFor(ControlPage& page, Queue queue, uint64_t ticket,
                   std::chrono::steady_clock::time_point deadline);

}  // namespace zerod
