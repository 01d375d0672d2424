#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "client/session.h"
#include "proto/contract/plan.h"

namespace zerod {

/// Takes the gradients of layers into slots, memory that the daemon reads, and submits their
/// reduces. Which slot a layer gets follows from the order of calls, never from timing, so that all
/// ranks agree.
///
/// A slot is open from a layer's first gradient until its reduce is submitted. A layer that finds
/// all slots open accumulates privately; it is copied and reduced, in the order of completion, once
/// a slot isn't open any more.
///
/// Threads: the one that runs the backward. Errors: those of Session.
class GradientSlots {
 public:
  /// The session outlives it. `slot_bytes` is the size of every slot.
  GradientSlots(Session& session, int count, int64_t slot_bytes);

  /// Layers are numbered 0, 1, … in the order of these calls; the plan outlives this.
  /// `session_index` is the layer's index in the job.
  void AddLayer(const LayerPlan& plan, int session_index);

  /// Copies (first since the last Complete) or adds (later) the gradient of tensor `tensor` of the
  /// layer's spec.
  void Add(size_t layer, size_t tensor, const at::Tensor& gradient);

  /// The layer has all its gradients of this backward: submits the reduce, or queues it. What no
  /// gradient was written to is zero, padding included.
  void Complete(size_t layer);

  /// Forgets what was added since the last Complete.
  void Discard(size_t layer);

  /// After a backward: nothing may be open or queued.
  void CheckIdle() const;

 private:
  struct Slot {
    Mapping memory;
    int64_t layer = -1;   // that has it open
    uint64_t ticket = 0;  // of its last reduce
  };
  struct Layer {
    const LayerPlan* plan = nullptr;
    int session_index = -1;
    int slot = -1;
    bool open = false;
    std::vector<at::Tensor> accumulated;  // private: by tensor, undefined where nothing came
    std::vector<bool> written;            // by tensor
  };

  int TakeSlot();
  at::Tensor SlotView(const Layer& layer, size_t tensor) const;
  void Open(size_t index);
  void Submit(size_t index);
  void DrainPrivate();

  Session& session_;
  std::vector<Slot> slots_;
  std::vector<Layer> layers_;
  size_t next_slot_ = 0;
  std::deque<size_t> finished_private_;
};

}  // namespace zerod
