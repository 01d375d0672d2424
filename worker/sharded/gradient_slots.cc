#include "worker/sharded/gradient_slots.h"

#include <cstring>

#include <ATen/ops/from_blob.h>

#include "proto/contract/error.h"

namespace zerod {

GradientSlots::GradientSlots(Session& session, int count, int64_t slot_bytes) : session_(session) {
  for (int i = 0; slot_bytes > 0 && i < count; ++i) {
    slots_.emplace_back();
    slots_.back().memory = session.MapSlot(i);
    ZEROD_CHECK(static_cast<int64_t>(slots_.back().memory.size_bytes()) >= slot_bytes, "slot ", i);
  }
}

void GradientSlots::AddLayer(const LayerPlan& plan, int session_index) {
  layers_.emplace_back();
  layers_.back().plan = &plan;
  layers_.back().session_index = session_index;
  layers_.back().written.resize(plan.tensors.size());
  layers_.back().accumulated.resize(plan.tensors.size());
}

int GradientSlots::TakeSlot() {
  for (size_t tried = 0; tried < slots_.size(); ++tried) {
    const size_t index = next_slot_;
    next_slot_ = (next_slot_ + 1) % slots_.size();
    if (slots_[index].layer >= 0) continue;
    if (slots_[index].ticket != 0) {
      session_.Wait(Queue::kReduce, slots_[index].ticket, Concat("reduce from slot ", index));
    }
    return static_cast<int>(index);
  }
  return -1;
}

at::Tensor GradientSlots::SlotView(const Layer& layer, size_t tensor) const {
  const TensorPlan& plan = layer.plan->tensors[tensor];
  const ChunkPlan& chunk = layer.plan->chunks[plan.chunk];
  std::byte* data = slots_[layer.slot].memory.data() + chunk.slot_offset_bytes +
                    plan.offset_numel * static_cast<int64_t>(sizeof(float));
  return at::from_blob(data, layer.plan->spec.tensors[tensor].shape, at::kFloat);
}

void GradientSlots::Open(size_t index) {
  Layer& layer = layers_[index];
  if (layer.open) return;
  layer.open = true;
  layer.slot = TakeSlot();
  if (layer.slot >= 0) slots_[layer.slot].layer = static_cast<int64_t>(index);
}

void GradientSlots::Add(size_t index, size_t tensor, const at::Tensor& gradient) {
  Open(index);
  Layer& layer = layers_[index];
  if (layer.slot < 0) {
    at::Tensor& sum = layer.accumulated[tensor];
    if (layer.written[tensor]) {
      sum.add_(gradient);
    } else {
      // In float32, as in a slot: which layers find one must not show in the values.
      sum = gradient.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true,
                        at::MemoryFormat::Contiguous);
    }
  } else if (layer.written[tensor]) {
    SlotView(layer, tensor).add_(gradient);
  } else {
    SlotView(layer, tensor).copy_(gradient);
  }
  layer.written[tensor] = true;
}

void GradientSlots::Complete(size_t index) {
  Open(index);
  if (layers_[index].slot < 0) {
    finished_private_.push_back(index);
  } else {
    Submit(index);
  }
  DrainPrivate();
}

void GradientSlots::DrainPrivate() {
  while (!finished_private_.empty()) {
    const size_t index = finished_private_.front();
    Layer& layer = layers_[index];
    layer.slot = TakeSlot();
    if (layer.slot < 0) return;
    finished_private_.pop_front();
    for (size_t tensor = 0; tensor < layer.accumulated.size(); ++tensor) {
      if (layer.written[tensor]) SlotView(layer, tensor).copy_(layer.accumulated[tensor]);
      layer.accumulated[tensor].reset();
    }
    Submit(index);
  }
}

void GradientSlots::Submit(size_t index) {
  Layer& layer = layers_[index];
  Slot& slot = slots_[layer.slot];
  // Zero what no gradient was written to: gaps between tensors, padding, tensors without gradient.
  for (size_t chunk = 0; chunk < layer.plan->chunks.size(); ++chunk) {
    const ChunkPlan& plan = layer.plan->chunks[chunk];
    if (!plan.trainable) continue;
    auto* values = reinterpret_cast<float*>(slot.memory.data() + plan.slot_offset_bytes);
    int64_t done_numel = 0;
    auto zero_until = [&](int64_t end_numel) {
      std::memset(values + done_numel, 0, (end_numel - done_numel) * sizeof(float));
    };
    for (size_t i = 0; i < layer.plan->tensors.size(); ++i) {
      const TensorPlan& tensor = layer.plan->tensors[i];
      if (tensor.chunk != static_cast<int>(chunk) || !layer.written[i]) continue;
      zero_until(tensor.offset_numel);
      done_numel = tensor.offset_numel + tensor.numel;
    }
    zero_until(plan.padded_numel);
  }
  Operation operation;
  operation.kind = OperationKind::kReduce;
  operation.layer = layer.session_index;
  operation.slot = layer.slot;
  operation.has_gradient = layer.written;
  slot.ticket = session_.Submit(std::move(operation));
  session_.Flush();
  slot.layer = -1;
  Discard(index);
}

void GradientSlots::Discard(size_t index) {
  Layer& layer = layers_[index];
  if (layer.slot >= 0 && slots_[layer.slot].layer == static_cast<int64_t>(index)) {
    slots_[layer.slot].layer = -1;
  }
  layer.slot = -1;
  layer.open = false;
  layer.written.assign(layer.written.size(), false);
  for (at::Tensor& sum : layer.accumulated) sum.reset();
}

void GradientSlots::CheckIdle() const {
  ZEROD_CHECK(finished_private_.empty(), "gradients of a layer wait for a slot after the backward");
}

}  // namespace zerod
