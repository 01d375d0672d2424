#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "proto/contract/shared_memory.h"
#include "server/store/layer_store.h"
#include "server/store/state_header.h"

namespace zerod {

/// What training state belongs to: layers, step number, private state. Outlives the workers.
/// Guarded by the engine's lock.
class Job {
 public:
  explicit Job(Placement placement);

  const std::string& id() const { return placement_.job_id; }
  const Placement& placement() const { return placement_; }
  const Mesh& mesh() const { return placement_.mesh; }

  /// More can't be named on the wire.
  static constexpr int kLayersMax = 4096;

  /// Plans and allocates the next layer. Throws Error (kInvalidArgument: no tensors, a name that is
  /// taken, impossible sizes, types that can't be trained, one layer too many; kResourceExhausted:
  /// descriptors, or more state than the machine has memory). Nothing is changed then.
  LayerStore& AddLayer(const LayerSpec& spec);

  std::vector<std::unique_ptr<LayerStore>>& layers() { return layers_; }
  const std::vector<std::unique_ptr<LayerStore>>& layers() const { return layers_; }
  LayerStore& layer(int index) { return *layers_[index]; }

  /// Hash over all layers, in order.
  uint64_t PlanHash() const;
  /// Bytes of one gradient slot: the largest layer's.
  int64_t SlotBytes() const;
  int64_t StateBytes() const;  ///< everything that is held on this node
  int64_t ParametersNumel() const;
  int64_t TrainableNumel() const;

  /// One local rank's step record, in its own durable memory.
  StepProgress& Progress(int local_rank);

  uint64_t step = 0;
  bool sealed = false;                     ///< all layers are registered; no more may come
  uint64_t epoch = 0;                      ///< newest epoch in which it was attached
  std::vector<std::string> private_state;  ///< per local rank

 private:
  void CheckSpec(const LayerSpec& spec) const;
  void CheckMemory(const LayerPlan& plan) const;

  Placement placement_;
  std::unordered_set<std::string> layer_names_;
  std::unordered_map<std::string, int> layers_of_tensors_;
  std::vector<std::unique_ptr<LayerStore>> layers_;
  std::vector<SharedMemory> records_;  // per local rank
};

}  // namespace zerod
