#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "proto/contract/error.h"
#include "proto/contract/plan.h"

namespace zerod {

/// What an attach found; becomes the Welcome message.
struct Welcome {
  uint64_t epoch = 0;
  std::string job_id;
  bool created = true;
  uint64_t step = 0;
  Mesh mesh;
  int node = 0;
  int node_count = 1;
  uint64_t token = 0;
  std::string private_state;
  int gradient_slots = 2;
  int64_t cache_bytes = 0;
  int64_t deadline_ms = 120'000;
};

/// The engine tells one worker's session. Called from any engine thread, sometimes with engine
/// locks held: implementations only queue a message and return; they never call back into the
/// engine.
class WorkerEvents {
 public:
  virtual ~WorkerEvents() = default;
  virtual void OnWelcome(const Welcome& welcome) = 0;
  virtual void OnPlan(uint64_t ticket, int layer, const LayerPlan& plan) = 0;
  virtual void OnWarning(const std::string& message) = 0;
  /// The attach is over; nothing follows. The stream is to be closed after the message.
  virtual void OnFault(const Error& error) = 0;
  virtual void OnDetached() = 0;
};

}  // namespace zerod
