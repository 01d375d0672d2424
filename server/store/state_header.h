#pragma once

#include <cstdint>
#include <string_view>

#include "proto/contract/operation.h"
#include "proto/contract/plan.h"
#include "proto/contract/shared_memory.h"

namespace zerod {

/// What a durable memory holds.
enum class StateKind : uint32_t {
  kRegion = 1,  ///< a node's whole padded chunk of parameters
  kShard = 2,   ///< one rank's accumulator, moments and master of one chunk
  kRecord = 3,  ///< one rank's step record
  kCounts = 4,  ///< Adam updates of each tensor of a layer
};

/// First page of every memory that outlives a step, so that it explains itself to whoever finds the
/// descriptor: a later incarnation of the daemon, or a person with a debugger.
struct StateHeader {
  static constexpr uint64_t kMagic = 0x6574'6174'732e'7a64;  // "dz.state"
  static constexpr uint32_t kFormatVersion = 1;

  uint64_t magic = kMagic;
  uint32_t format_version = kFormatVersion;
  StateKind kind = StateKind::kRegion;
  char job_id[128] = {};  ///< zero-terminated
  uint64_t epoch = 0;     ///< of the group that wrote last
  uint64_t layer_hash = 0;
  int32_t layer = -1;
  int32_t chunk = -1;
  int32_t rank = -1;  ///< global; -1 where it belongs to the node
  int32_t dp = 1;
  int32_t tp = 1;
  int32_t reserved = 0;
  uint64_t version = 0;  ///< steps that are in the bytes
};
static_assert(sizeof(StateHeader) <= kRegionHeaderBytes);

/// How far a rank's shards are. Written before and after each update; `begun == applied` outside.
struct StepProgress {
  uint64_t decided = 0;     ///< the step whose norm is known: it will be finished
  uint64_t begun = 0;       ///< the step whose update has begun
  uint64_t applied = 0;     ///< the step whose update is complete in all shards
  StepArguments arguments;  ///< of `decided`
  double grad_norm = 0.0;   ///< of `decided`
  double factor = 1.0;      ///< divisor and clip factor of `decided`
  int32_t layer = -1;       ///< being updated now
  int32_t chunk = -1;
  int64_t block = -1;  ///< of 64 Ki elements
};

inline StateHeader& HeaderOf(const SharedMemory& memory) {
  return *reinterpret_cast<StateHeader*>(memory.data());
}

/// Fills the header's text field; longer ids are cut.
void SetJobId(StateHeader& header, std::string_view job_id);

}  // namespace zerod
