#include "worker/autograd/backward_state.h"

#include <algorithm>
#include <set>
#include <utility>

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "proto/contract/error.h"

namespace zerod {
namespace {

using torch::autograd::FunctionPostHook;
using torch::autograd::FunctionPreHook;
using torch::autograd::Node;
using torch::autograd::variable_list;

// Which nodes the backward that runs on this thread will execute, the running one included.
class ExecutedNodes {
 public:
  ExecutedNodes()
      : nodes_(*torch::autograd::get_current_graph_task_nodes_in_graph()),
        filter_(*torch::autograd::get_current_graph_task_exec_info()),
        running_(torch::autograd::get_current_node()) {}

  bool Contains(Node* node) const {
    if (node == nullptr) return false;
    // LibTorch doesn't list the node that the backward starts from: a loss made inside a layer.
    if (node == running_.get()) return true;
    if (!nodes_.contains(node)) return false;
    if (filter_.empty()) return true;
    // With chosen inputs, a node that is only asked for its incoming gradient runs no hook.
    const auto info = filter_.find(node);
    return info != filter_.end() && info->second.needed_;
  }

 private:
  const std::unordered_set<Node*>& nodes_;
  const std::unordered_map<Node*, torch::autograd::GraphTask::ExecInfo>& filter_;
  std::shared_ptr<Node> running_;
};

class BeforeNodeHook : public FunctionPreHook {
 public:
  BeforeNodeHook(std::weak_ptr<BackwardState> state, uint64_t call)
      : state_(std::move(state)), call_(call) {}

  variable_list operator()(const variable_list& gradients) override {
    if (const auto state = state_.lock()) state->BeforeNode(call_);
    return gradients;
  }

 private:
  std::weak_ptr<BackwardState> state_;
  uint64_t call_;
};

// Dies with its node and then takes the node out of the call; the last one ends the call.
class AfterNodeHook : public FunctionPostHook {
 public:
  AfterNodeHook(std::weak_ptr<BackwardState> state, uint64_t call, std::shared_ptr<CallNodes> nodes,
                size_t index)
      : state_(std::move(state)), call_(call), nodes_(std::move(nodes)), index_(index) {}
  ~AfterNodeHook() override {
    nodes_->nodes[index_] = nullptr;
    if (nodes_.use_count() > 1) return;
    if (const auto state = state_.lock()) state->ForgetCall(call_);
  }

  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    if (const auto state = state_.lock()) state->AfterNode(call_);
    return outputs;
  }

 private:
  std::weak_ptr<BackwardState> state_;
  uint64_t call_;
  std::shared_ptr<CallNodes> nodes_;
  size_t index_;
};

class AfterAccumulateHook : public FunctionPostHook {
 public:
  AfterAccumulateHook(std::weak_ptr<BackwardState> state, size_t layer, size_t parameter)
      : state_(std::move(state)), layer_(layer), parameter_(parameter) {}

  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    if (const auto state = state_.lock()) state->AfterAccumulate(layer_, parameter_);
    return outputs;
  }

 private:
  std::weak_ptr<BackwardState> state_;
  size_t layer_;
  size_t parameter_;
};

}  // namespace

// Lives in the callback list of LibTorch's graph task: called when the backward is through,
// destroyed without a call when it threw.
class BackwardState::BackwardWatch {
 public:
  BackwardWatch(std::weak_ptr<BackwardState> state, int id) : state_(std::move(state)), id_(id) {}
  BackwardWatch(const BackwardWatch&) = delete;
  BackwardWatch& operator=(const BackwardWatch&) = delete;
  ~BackwardWatch() {
    const auto state = state_.lock();
    if (state && !finished_) state->Fail(id_);
  }

  void Finish() {
    if (const auto state = state_.lock()) state->Finish(id_);
    finished_ = true;
  }

 private:
  std::weak_ptr<BackwardState> state_;
  int id_;
  bool finished_ = false;
};

size_t BackwardState::AddLayer(at::TensorList parameters) {
  const size_t layer = layers_.size();
  std::vector<Parameter> entries;
  for (const at::Tensor& tensor : parameters) {
    Parameter entry{tensor, nullptr, 0};
    if (tensor.requires_grad()) {
      ZEROD_CHECK(tensor.is_leaf(), "parameter ", entries.size(), " of layer ", layer,
                  " is the result of a computation");
      entry.accumulator = torch::autograd::impl::grad_accumulator(tensor);
      entry.hook_key = entry.accumulator->add_post_hook(
          std::make_unique<AfterAccumulateHook>(weak_from_this(), layer, entries.size()));
    }
    entries.push_back(std::move(entry));
  }
  layers_.push_back(std::move(entries));
  incomplete_.push_back(false);
  return layer;
}

void BackwardState::Close() {
  events_ = nullptr;
  for (std::vector<Parameter>& layer : layers_) {
    for (Parameter& parameter : layer) {
      if (parameter.accumulator) parameter.accumulator->del_post_hook(parameter.hook_key);
    }
  }
  layers_.clear();
}

void BackwardState::AddCall(const std::shared_ptr<CallNodes>& call) {
  const uint64_t number = next_call_++;
  calls_.emplace(number, call);
  for (size_t i = 0; i < call->nodes.size(); ++i) {
    Node& node = *call->nodes[i];
    node.add_pre_hook(std::make_unique<BeforeNodeHook>(weak_from_this(), number));
    node.add_post_hook(std::make_unique<AfterNodeHook>(weak_from_this(), number, call, i));
  }
}

size_t BackwardState::StartRecord() {
  ++open_records_;
  return recorded_layers_.size();
}

void BackwardState::EndRecord() {
  if (--open_records_ == 0) recorded_layers_.clear();
}

void BackwardState::NoteCall(size_t layer) {
  if (open_records_ > 0) recorded_layers_.push_back(layer);
}

std::vector<at::Tensor> BackwardState::RecordedParameters(size_t first) const {
  const std::set<size_t> layers(recorded_layers_.begin() + first, recorded_layers_.end());
  std::vector<at::Tensor> parameters;
  for (size_t layer : layers) {
    for (const Parameter& parameter : layers_[layer]) {
      if (parameter.accumulator) parameters.push_back(parameter.tensor);
    }
  }
  return parameters;
}

BackwardState::Backward& BackwardState::Current() {
  const int id = torch::autograd::get_current_graph_task_id();
  // A backward that threw inside this one and was caught is not removed before LibTorch drops it.
  const auto known = std::find_if(running_.begin(), running_.end(),
                                  [id](const Backward& backward) { return backward.id == id; });
  if (known == running_.end()) return Start(id);
  running_.erase(known + 1, running_.end());
  return *known;
}

BackwardState::Backward& BackwardState::Start(int id) {
  Backward backward{
      id, std::vector<size_t>(layers_.size()), std::vector<size_t>(layers_.size()), {}, {}};
  CountAccumulators(backward);
  const std::vector<size_t> plan = CountCalls(backward);
  running_.push_back(std::move(backward));
  auto watch = std::make_shared<BackwardWatch>(weak_from_this(), id);
  torch::autograd::Engine::get_default_engine().queue_callback([watch] { watch->Finish(); });
  events_->OnBackwardPlan(plan);
  return running_.back();
}

void BackwardState::CountAccumulators(Backward& backward) const {
  const ExecutedNodes executed;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    for (const Parameter& parameter : layers_[layer]) {
      if (executed.Contains(parameter.accumulator.get())) ++backward.accumulators_left[layer];
    }
  }
}

std::vector<size_t> BackwardState::CountCalls(Backward& backward) const {
  const ExecutedNodes executed;
  struct Entry {
    uint64_t last_sequence;
    size_t layer;
  };
  std::vector<Entry> order;
  for (const auto& [number, weak_call] : calls_) {
    const std::shared_ptr<CallNodes> call = weak_call.lock();
    if (!call) continue;
    const size_t count = std::count_if(call->nodes.begin(), call->nodes.end(),
                                       [&](Node* node) { return executed.Contains(node); });
    if (count == 0) continue;
    backward.calls.emplace(number, CallProgress{call->layer, count, false});
    ++backward.calls_left[call->layer];
    order.push_back({call->last_sequence, call->layer});
  }
  // Calls that share their newest node begin in the order in which they hooked it.
  std::stable_sort(order.begin(), order.end(), [](const Entry& a, const Entry& b) {
    return a.last_sequence > b.last_sequence;
  });
  std::vector<size_t> plan;
  plan.reserve(order.size());
  for (const Entry& entry : order) plan.push_back(entry.layer);
  return plan;
}

void BackwardState::BeforeNode(uint64_t call) {
  if (events_ == nullptr) return;
  Backward& backward = Current();
  CallProgress& progress = backward.calls.at(call);
  if (!std::exchange(progress.begun, true)) {
    const c10::AutoGradMode no_grad(false);
    events_->OnBackwardBegin(progress.layer);
  }
  // The outermost of calls that share the node is the first to hear of it.
  if (!backward.running_layer) backward.running_layer = progress.layer;
}

void BackwardState::AfterNode(uint64_t call) {
  if (events_ == nullptr) return;
  Backward& backward = Current();
  backward.running_layer.reset();
  CallProgress& progress = backward.calls.at(call);
  if (--progress.nodes_left == 0) EndCall(backward, progress);
}

void BackwardState::EndCall(Backward& backward, CallProgress& progress) {
  const size_t layer = progress.layer;
  --backward.calls_left[layer];
  const bool more_calls = std::any_of(running_.begin(), running_.end(), [layer](const Backward& b) {
    return b.calls_left[layer] > 0;
  });
  const c10::AutoGradMode no_grad(false);
  events_->OnBackwardEnd(layer, more_calls);
}

void BackwardState::AfterAccumulate(size_t layer, size_t parameter) {
  if (events_ == nullptr) return;
  Backward& backward = Current();
  const c10::AutoGradMode no_grad(false);
  // Taken out first: nothing stays behind in .grad if the receiver throws.
  at::Tensor gradient = std::exchange(layers_[layer][parameter].tensor.mutable_grad(), {});
  if (gradient.defined()) {
    incomplete_[layer] = true;
    gradient = gradient.detach();
    events_->OnGradient(layer, parameter,
                        gradient.layout() == at::kStrided ? gradient : gradient.to_dense());
  }
  if (--backward.accumulators_left[layer] == 0) CompleteLayer(layer);
}

// A layer that an outer backward still has to differentiate, or whose checkpointed call it is just
// running, is left to that one.
void BackwardState::CompleteLayer(size_t layer) {
  for (const Backward& backward : running_) {
    if (backward.accumulators_left[layer] > 0) return;
  }
  incomplete_[layer] = false;
  events_->OnGradientsComplete(layer);
}

void BackwardState::Finish(int id) {
  if (events_ == nullptr || running_.empty()) return;
  if (running_.front().id != id) {
    std::erase_if(running_, [id](const Backward& backward) { return backward.id == id; });
    return;
  }
  const c10::AutoGradMode no_grad(false);
  // What a caught failure inside this backward left behind.
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    if (incomplete_[layer]) CompleteLayer(layer);
  }
  running_.clear();
  events_->OnBackwardFinished();
}

void BackwardState::Fail(int id) noexcept {
  const auto failed = std::find_if(running_.begin(), running_.end(),
                                   [id](const Backward& backward) { return backward.id == id; });
  if (events_ == nullptr || failed == running_.end()) return;
  BackwardFailure failure{failed->running_layer, {}};
  running_.erase(failed, running_.end());
  if (!running_.empty()) return;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    if (incomplete_[layer]) failure.incomplete.push_back(layer);
    incomplete_[layer] = false;
  }
  events_->OnBackwardFailed(failure);
}

}  // namespace zerod
