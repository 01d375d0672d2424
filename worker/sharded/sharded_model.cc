#include "worker/sharded/sharded_model.h"

#include <algorithm>
#include <optional>

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "proto/contract/error.h"
#include "worker/autograd/fault_report.h"
#include "worker/autograd/layer_call.h"

namespace zerod {

ShardedModel::ShardedModel(Session& session, ShardedOptions options)
    : session_(session),
      options_(std::move(options)),
      tracker_(*this),
      version_(session.info().step) {
  if (options_.prefetch_depth < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("prefetch_depth is ", options_.prefetch_depth, ", it can't be negative"));
  }
  InstallFaultReport(session.info().rank);
}

ShardedModel::~ShardedModel() = default;

void ShardedModel::Seal() {
  if (sealed_) return;
  CheckWindow();
  session_.Seal();
  sealed_ = true;
  int64_t slot_bytes = 0;
  for (const Layer& layer : layers_) slot_bytes = std::max(slot_bytes, layer.plan.slot_bytes);
  slots_ = std::make_unique<GradientSlots>(session_, session_.info().gradient_slots, slot_bytes);
  for (const Layer& layer : layers_) slots_->AddLayer(layer.plan, layer.session_index);
}

uint64_t ShardedModel::Submit(OperationKind kind, size_t layer) {
  Operation operation;
  operation.kind = kind;
  operation.layer = layers_[layer].session_index;
  if (kind == OperationKind::kGather) operation.version = version_;
  return session_.Submit(std::move(operation));
}

// --- acquiring and releasing ---------------------------------------------------------------------

void ShardedModel::Request(size_t index) {
  Layer& layer = layers_[index];
  layer.gather_ticket = Submit(OperationKind::kGather, index);
  layer.residence = Residence::kRequested;
  held_bytes_ += layer.plan.gathered_bytes;
}

bool ShardedModel::FitsWindow(size_t layer) const {
  const int64_t window_bytes = session_.info().window_bytes;
  return window_bytes == 0 || held_bytes_ + layers_[layer].plan.gathered_bytes <= window_bytes;
}

void ShardedModel::MakeRoom(size_t index) {
  // What was asked for on a wrong guess goes first.
  for (size_t other = 0; other < layers_.size() && !FitsWindow(index); ++other) {
    if (layers_[other].holds == 0 && layers_[other].residence != Residence::kReleased) {
      Release(other);
    }
  }
  if (!FitsWindow(index)) DropKept();
  if (FitsWindow(index)) return;
  const Layer& layer = layers_[index];
  throw Error(ErrorCode::kResourceExhausted,
              Concat("layer '", layer_name(index), "' (", layer.plan.gathered_bytes,
                     " bytes) doesn't fit the gather window of ", session_.info().window_bytes,
                     " bytes, of which layers in use hold ", held_bytes_,
                     "; set window_bytes to at least ", held_bytes_ + layer.plan.gathered_bytes));
}

void ShardedModel::Acquire(size_t index) {
  Layer& layer = layers_[index];
  if (layer.session_index < 0) return;
  if (layer.residence == Residence::kReleased) {
    if (!FitsWindow(index)) MakeRoom(index);
    Request(index);
  }
  if (layer.residence == Residence::kRequested) {
    session_.Wait(Queue::kGather, layer.gather_ticket,
                  Concat("gather of layer '", layer_name(index), "'"));
    for (size_t chunk = 0; chunk < layer.storages.size(); ++chunk) {
      layer.storages[chunk]->Bind(layer.regions[chunk].data() + kRegionHeaderBytes);
    }
    layer.residence = Residence::kBound;
  }
  ++layer.holds;
}

void ShardedModel::Release(size_t index) {
  Layer& layer = layers_[index];
  for (const auto& storage : layer.storages) {
    if (storage->bound()) storage->Unbind();
  }
  Submit(OperationKind::kRelease, index);
  layer.residence = Residence::kReleased;
  held_bytes_ -= layer.plan.gathered_bytes;
}

void ShardedModel::Unhold(size_t index) {
  Layer& layer = layers_[index];
  if (layer.session_index < 0) return;
  ZEROD_CHECK(layer.holds > 0, "layer '", layer_name(index), "'");
  if (--layer.holds == 0) Release(index);
}

void ShardedModel::Prefetch(const std::vector<size_t>& expected) {
  for (size_t index : expected) {
    Layer& layer = layers_[index];
    if (layer.session_index < 0 || layer.residence != Residence::kReleased) continue;
    if (!FitsWindow(index)) break;
    Request(index);
  }
  session_.Flush();
}

void ShardedModel::ReleaseUnused() {
  for (size_t index = 0; index < layers_.size(); ++index) {
    if (layers_[index].holds == 0 && layers_[index].residence != Residence::kReleased) {
      Release(index);
    }
  }
}

void ShardedModel::DropKept() {
  for (size_t index = 0; index < layers_.size(); ++index) {
    if (!std::exchange(layers_[index].kept, false)) continue;
    Unhold(index);
  }
}

// --- forward -------------------------------------------------------------------------------------

void ShardedModel::BeginPass(const std::vector<size_t>& expected) {
  Seal();
  in_pass_ = true;
  pass_training_ = c10::GradMode::is_enabled();
  order_.BeginPass(pass_training_);
  if (!expected.empty()) order_.Expect(expected);
}

std::vector<at::Tensor> ShardedModel::Call(size_t index, const std::vector<at::Tensor>& inputs) {
  if (!in_pass_ || pass_training_ != c10::GradMode::is_enabled()) BeginPass();
  const Layer& layer = layers_[index];
  std::vector<size_t> used{index};  // the layer itself first: LayerCalls nest in this order
  used.insert(used.end(), layer.uses.begin(), layer.uses.end());
  std::vector<size_t> expected = order_.Call(index, options_.prefetch_depth);
  for (size_t use : used) Acquire(use);
  Prefetch(expected);
  std::vector<LayerCall> calls;
  calls.reserve(used.size());
  for (size_t use : used) calls.emplace_back(tracker_, use);
  std::vector<at::Tensor> outputs;
  try {
    outputs = RunForward(index, inputs);
  } catch (...) {
    for (size_t use : used) Unhold(use);
    throw;
  }
  bool attached = false;
  for (LayerCall& call : calls) attached = call.Attach(outputs) || attached;
  KeepForBackward(index, attached);
  for (size_t use : used) Unhold(use);
  return outputs;
}

std::vector<at::Tensor> ShardedModel::RunForward(size_t index,
                                                 const std::vector<at::Tensor>& inputs) {
  const Layer& layer = layers_[index];
  try {
    if (!layer.checkpoint || !c10::GradMode::is_enabled()) return layer.module.forward(inputs);
    std::vector<at::Tensor> parameters = layer.parameters;
    for (size_t use : layer.uses) {
      const auto& others = layers_[use].parameters;
      parameters.insert(parameters.end(), others.begin(), others.end());
    }
    return Checkpoint(tracker_, layer.module.forward, inputs, parameters);
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::kInvalidArgument, Concat("forward of layer '", layer_name(index),
                                                    "': ", error.what_without_backtrace()));
  }
}

void ShardedModel::KeepForBackward(size_t index, bool attached) {
  // The backward of the last layer comes next: gathering it again would be in vain.
  Layer& layer = layers_[index];
  if (!attached || layer.session_index < 0 || layer.kept || !order_.AtEnd()) return;
  DropKept();
  layer.kept = true;
  ++layer.holds;
}

// --- backward ------------------------------------------------------------------------------------

void ShardedModel::OnBackwardPlan(const std::vector<size_t>& layers) {
  if (in_pass_) order_.BeginPass(true);
  in_pass_ = false;
  backward_order_.insert(backward_order_.begin(), layers.begin(), layers.end());
}

void ShardedModel::OnBackwardBegin(size_t index) {
  const auto own = std::ranges::find(backward_order_, index);
  if (own != backward_order_.end()) backward_order_.erase(own);
  Acquire(index);
  if (std::exchange(layers_[index].kept, false)) Unhold(index);
  std::vector<size_t> expected;
  for (size_t next : backward_order_) {
    if (expected.size() >= static_cast<size_t>(options_.prefetch_depth)) break;
    if (next != index && std::ranges::find(expected, next) == expected.end()) {
      expected.push_back(next);
    }
  }
  Prefetch(expected);
}

void ShardedModel::OnBackwardEnd(size_t layer, bool /*more_calls*/) { Unhold(layer); }

void ShardedModel::OnGradient(size_t layer, size_t parameter, const at::Tensor& gradient) {
  slots_->Add(layer, parameter, gradient);
}

void ShardedModel::OnGradientsComplete(size_t layer) { slots_->Complete(layer); }

void ShardedModel::OnBackwardFinished() {
  backward_order_.clear();
  DropKept();
  ReleaseUnused();
  slots_->CheckIdle();
  session_.Flush();
  ++backwards_;
}

void ShardedModel::OnBackwardFailed(const BackwardFailure& failure) noexcept {
  backward_order_.clear();
  for (size_t layer : failure.incomplete) slots_->Discard(layer);
  for (Layer& layer : layers_) {
    layer.holds = 0;
    layer.kept = false;
  }
  try {
    ReleaseUnused();
    session_.ThrowIfAborted();
    if (!failure.layer) return;
    // The exception is on its way through LibTorch to the caller of backward(): nothing can be
    // added to it.
    session_.Warn(Concat("the backward of layer '", layer_name(*failure.layer),
                         "' failed; its exception says why"));
  } catch (const Error&) {
    // The session is over; its error reaches the caller of backward() or comes with the next call.
  }
}

// --- step ----------------------------------------------------------------------------------------

StepResult ShardedModel::Step(const StepOptions& options) {
  Seal();
  if (options.values.size() > kValuesMax) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat(options.values.size(), " values, at most ", kValuesMax));
  }
  Operation operation;
  operation.kind = OperationKind::kStep;
  StepArguments& step = operation.step;
  step.optimizer = options.optimizer;
  step.learning_rate = options.learning_rate;
  step.beta1 = options.beta1;
  step.beta2 = options.beta2;
  step.eps = options.eps;
  step.weight_decay = options.weight_decay;
  step.max_grad_norm = options.max_grad_norm;
  step.gradient_divisor = options.gradient_divisor != 0
                              ? options.gradient_divisor
                              : session_.info().mesh.dp * std::max(1, backwards_);
  operation.values = options.values;
  operation.private_state = options.private_state;
  const uint64_t ticket = session_.Submit(std::move(operation));
  // The step ends every lease; a later backward through what was saved before must raise.
  for (Layer& layer : layers_) {
    for (const auto& storage : layer.storages) {
      if (storage->bound()) storage->Unbind();
    }
    layer.residence = Residence::kReleased;
    layer.holds = 0;
    layer.kept = false;
    for (const at::Tensor& parameter : layer.parameters) {
      if (parameter.requires_grad()) parameter.unsafeGetTensorImpl()->bump_version();
    }
  }
  held_bytes_ = 0;
  backwards_ = 0;
  in_pass_ = false;
  order_.BeginPass(true);
  ++version_;
  Prefetch(order_.First(options_.prefetch_depth));  // waits in the daemon for the new version
  session_.Wait(Queue::kStep, ticket, Concat("step ", version_));
  const StepRecord record = session_.step_record();
  return {record.step, record.grad_norm, record.skipped != 0,
          std::vector<double>(record.values, record.values + record.value_count)};
}

std::vector<double> ShardedModel::Sum(const std::vector<double>& values) {
  Seal();
  DropKept();
  ReleaseUnused();
  in_pass_ = false;
  Operation operation;
  operation.kind = OperationKind::kScalar;
  operation.values = values;
  session_.Wait(Queue::kScalar, session_.Submit(std::move(operation)), "sum over the ranks");
  return session_.scalar_values(static_cast<int>(values.size()));
}

}  // namespace zerod
