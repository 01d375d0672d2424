#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include "worker/autograd/layer_events.h"

namespace zerod {

/// The nodes of one forward call; owned by the hooks on them. Internal to worker/autograd.
struct CallNodes {
  size_t layer;
  uint64_t last_sequence;                     // of its newest node: LibTorch runs newest first
  std::vector<torch::autograd::Node*> nodes;  // nullptr once the node is gone
};

/// The bookkeeping behind BackwardTracker; its hooks refer to it weakly. Internal to
/// worker/autograd; threads and failure as in LayerEvents.
class BackwardState : public std::enable_shared_from_this<BackwardState> {
 public:
  explicit BackwardState(LayerEvents& events) : events_(&events) {}

  size_t AddLayer(at::TensorList parameters);
  /// Takes every hook off the parameters and reports nothing from now on.
  void Close();

  /// Hooks every node of `call`, which reports itself until the last node is gone.
  void AddCall(const std::shared_ptr<CallNodes>& call);

  // For CallRecord: notes the layers that are called while any record is open.
  size_t StartRecord();
  void EndRecord();
  void NoteCall(size_t layer);
  std::vector<at::Tensor> RecordedParameters(size_t first) const;

  // What the hooks report. All of them run inside a backward.
  void BeforeNode(uint64_t call);
  void AfterNode(uint64_t call);
  void AfterAccumulate(size_t layer, size_t parameter);
  void ForgetCall(uint64_t call) { calls_.erase(call); }

 private:
  struct Parameter {
    at::Tensor tensor;
    std::shared_ptr<torch::autograd::Node> accumulator;  // undefined for a frozen parameter
    uintptr_t hook_key = 0;
  };
  struct CallProgress {
    size_t layer;
    size_t nodes_left;
    bool begun;
  };
  // One backward that LibTorch is running. They stack: a backward inside a backward.
  struct Backward {
    int id;
    std::vector<size_t> accumulators_left;  // by layer
    std::vector<size_t> calls_left;         // by layer
    std::unordered_map<uint64_t, CallProgress> calls;
    std::optional<size_t> running_layer = {};  // whose node runs at the moment
  };
  class BackwardWatch;

  Backward& Current();
  Backward& Start(int id);
  void CountAccumulators(Backward& backward) const;
  std::vector<size_t> CountCalls(Backward& backward) const;
  void EndCall(Backward& backward, CallProgress& progress);
  void CompleteLayer(size_t layer);
  void Finish(int id);
  void Fail(int id) noexcept;

  LayerEvents* events_;  // nullptr once closed
  std::vector<std::vector<Parameter>> layers_;
  std::vector<bool> incomplete_;  // by layer: got a gradient since its last completion
  std::map<uint64_t, std::weak_ptr<CallNodes>> calls_;
  uint64_t next_call_ = 0;
  size_t open_records_ = 0;
  std::vector<size_t> recorded_layers_;
  std::deque<Backward> running_;  // references stay valid while an inner one is added
};

}  // namespace zerod
