#include "worker/autograd/layer_call.h"

#include <algorithm>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "worker/autograd/backward_state.h"

namespace zerod {
namespace {

using torch::autograd::Node;

// Nodes are numbered per thread in the order they are made, so the call's nodes are those of this
// thread numbered since the call began. AccumulateGrad nodes carry the highest number of all.
class CallRange {
 public:
  CallRange(uint64_t first, uint64_t end)
      : first_(first), end_(end), thread_(at::RecordFunction::currentThreadId()) {}

  bool Holds(const Node& node) const {
    return node.sequence_nr() >= first_ && node.sequence_nr() < end_ && node.thread_id() == thread_;
  }

 private:
  uint64_t first_;
  uint64_t end_;
  uint64_t thread_;
};

std::vector<Node*> NodesOf(at::TensorList outputs, uint64_t first_sequence) {
  std::vector<Node*> found;
  // grad_fn() of a view that was changed in place makes a new node: ask before the range is closed.
  for (const at::Tensor& output : outputs) {
    if (output.defined() && output.grad_fn()) found.push_back(output.grad_fn().get());
  }
  const CallRange range(first_sequence, at::sequence_number::peek());
  std::unordered_set<Node*> seen;
  std::vector<Node*> nodes;
  while (!found.empty()) {
    Node* node = found.back();
    found.pop_back();
    if (!range.Holds(*node) || !seen.insert(node).second) continue;
    nodes.push_back(node);
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      if (edge.is_valid()) found.push_back(edge.function.get());
    }
  }
  return nodes;
}

}  // namespace

LayerCall::LayerCall(BackwardTracker& tracker, size_t layer)
    : tracker_(tracker), layer_(layer), first_sequence_(at::sequence_number::peek()) {
  tracker_.state_->NoteCall(layer);
}

bool LayerCall::Attach(at::TensorList outputs) {
  std::vector<Node*> nodes = NodesOf(outputs, first_sequence_);
  if (nodes.empty()) return false;
  uint64_t last_sequence = 0;
  for (const Node* node : nodes) last_sequence = std::max(last_sequence, node->sequence_nr());
  tracker_.state_->AddCall(
      std::make_shared<CallNodes>(CallNodes{layer_, last_sequence, std::move(nodes)}));
  return true;
}

}  // namespace zerod
