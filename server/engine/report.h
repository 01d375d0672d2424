#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zerod {

/// What the admin service shows; plain values, copied under the engine's lock.
struct StatusReport {
  int node = 0;
  int node_count = 1;
  int ranks = 1;
  int first_rank = 0;
  int world_size = 0;  ///< 0 until all nodes are connected
  uint64_t epoch = 0;
  std::string attached_job;
  uint64_t step = 0;
  std::string state;  ///< joining, idle, attaching, training, aborting, ending
  std::string waiting_for;
  uint64_t gathers = 0;
  uint64_t reduces = 0;
  uint64_t gather_sent_bytes = 0;
  uint64_t gather_received_bytes = 0;
  uint64_t reduce_sent_bytes = 0;
  uint64_t reduce_received_bytes = 0;
  uint64_t cache_hits = 0;
  int64_t resident_gathered_bytes = 0;
};

struct JobReport {
  std::string job_id;
  uint64_t step = 0;
  bool attached = false;
  int layers = 0;
  int64_t parameters_numel = 0;
  int64_t trainable_numel = 0;
  int64_t state_bytes = 0;
  int dp = 1;
  int tp = 1;
  uint64_t plan_hash = 0;
};

struct LayerReport {
  int index = 0;
  std::string name;
  int tensors = 0;
  int64_t parameters_numel = 0;
  int64_t trainable_numel = 0;
  int64_t gathered_bytes = 0;
  uint64_t version = 0;
  int leases = 0;
  uint64_t gathers = 0;
  uint64_t reduces = 0;
};

struct ShardReport {
  int layer = 0;
  std::string layer_name;
  int chunk = 0;
  bool trainable = true;
  std::string dtype;
  int rank = 0;
  int64_t numel = 0;
  int64_t parameter_bytes = 0;
  int64_t state_bytes = 0;
  uint64_t version = 0;
  uint64_t checksum = 0;
};

struct MemoryReport {
  std::string name;
  int64_t predicted_bytes = 0;
  int64_t actual_bytes = 0;
};

struct SessionReport {
  int rank = 0;
  int64_t pid = 0;
  std::string program;
  std::string job_id;
  uint64_t epoch = 0;
  uint64_t last_ticket = 0;
  std::string last_operation;
  int leases = 0;
  int64_t attached_s = 0;
};

}  // namespace zerod
