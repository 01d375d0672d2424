#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace zerod {

/// Faults that tests inject; all zero means inert. Compiled in only with ZEROD_FAILPOINTS; the
/// option that sets them exists only then.
struct Failpoints {
  std::chrono::milliseconds gather_delay{0};  ///< before each gather is published
  std::chrono::milliseconds update_delay{0};  ///< before the update of `update_delay_layer`
  int update_delay_layer = -1;
  int update_delay_rank = -1;        ///< global rank; -1: all
  bool poison_fresh_memory = false;  ///< fill padding-free parts of fresh buffers with NaN
};

/// Options of the engine, from command line, environment and file (server/config).
struct EngineOptions {
  // Behaviour
  int node = 0;
  int node_count = 1;
  int ranks = 1;                                     ///< local ranks of this node
  std::chrono::milliseconds late_warning{5'000};     ///< a rank this late is reported
  std::chrono::milliseconds late_deadline{120'000};  ///< a rank this late ends the epoch
  std::chrono::milliseconds join_deadline{120'000};  ///< until all ranks are attached
  /// Absolute folders from which workers may have weights imported; none: nothing is read.
  std::vector<std::string> model_roots;
  Failpoints failpoints;

  // Performance
  int64_t cache_bytes = 0;  ///< default bound on released, still resident layers across nodes
  bool huge_pages = true;   ///< advise transparent huge pages for shards and slots
};

}  // namespace zerod
