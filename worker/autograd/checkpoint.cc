#include "worker/autograd/checkpoint.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <utility>

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include "worker/autograd/call_record.h"

namespace zerod {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The state of the default generator of every kind of device the inputs are on, and of the CPU.
class GeneratorStates {
 public:
  explicit GeneratorStates(at::TensorList tensors) {
    Add(at::Device(at::kCPU));
    for (const at::Tensor& tensor : tensors) {
      if (tensor.defined() && !tensor.is_cpu()) Add(tensor.device());
    }
  }

  void Restore() {
    for (auto& [generator, state] : states_) {
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_state(state);
    }
  }

 private:
  void Add(at::Device device) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    at::Tensor state = generator.get_state();
    states_.emplace_back(std::move(generator), std::move(state));
  }

  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

// Random operations of the second run draw what the first run drew.
class ReplayGenerators {
 public:
  ReplayGenerators(GeneratorStates& replayed, at::TensorList tensors) : present_(tensors) {
    replayed.Restore();
  }
  ~ReplayGenerators() { present_.Restore(); }
  ReplayGenerators(const ReplayGenerators&) = delete;
  ReplayGenerators& operator=(const ReplayGenerators&) = delete;

 private:
  GeneratorStates present_;
};

struct CheckpointedCall : torch::CustomClassHolder {
  CheckpointedCall(TensorFunction run, at::TensorList inputs)
      : function(std::move(run)), input_count(inputs.size()), generators(inputs) {}

  TensorFunction function;
  size_t input_count;  // the tensors after these are parameters
  GeneratorStates generators;
};

constexpr char kCallKey[] = "call";
constexpr size_t kPlainArguments = 2;  // of CheckpointFunction::forward, before the tensors

// Takes the gradient of an input of the second run as it is. As a leaf the input would get it in
// its own memory layout, and layers before it would compute with other strides, so other last bits,
// than without a checkpoint; nor could the function change it in place.
struct GradientSink : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override {
    gradient = std::move(gradients[0]);
    return {};
  }

  at::Tensor gradient;
};

// What the second run starts from.
struct Replay {
  variable_list inputs;
  std::vector<std::shared_ptr<GradientSink>> sinks;  // null where no gradient is needed
};

Replay ReplayOf(at::TensorList inputs) {
  Replay replay;
  for (const at::Tensor& input : inputs) {
    std::shared_ptr<GradientSink> sink;
    at::Tensor replayed = input.defined() ? input.detach() : input;
    if (input.defined() && input.requires_grad()) {
      sink = std::make_shared<GradientSink>();
      torch::autograd::create_gradient_edge(replayed, sink);
    }
    replay.inputs.push_back(std::move(replayed));
    replay.sinks.push_back(std::move(sink));
  }
  return replay;
}

// What of the second run is to be differentiated.
struct Roots {
  variable_list outputs;
  variable_list gradients;
};

Roots RootsOf(const variable_list& outputs, const variable_list& gradients) {
  Roots roots;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
    roots.outputs.push_back(outputs[i]);
    roots.gradients.push_back(gradients[i]);
  }
  return roots;
}

bool AnyDefined(const variable_list& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) return true;
  }
  return false;
}

// With backward() and no chosen inputs the parameters accumulate in a backward of their own, one
// after the other, so no layer's worth of gradients piles up here.
variable_list DifferentiateAll(const Roots& roots, const Replay& replay, size_t leaf_count) {
  torch::autograd::backward(roots.outputs, roots.gradients);
  variable_list gradients(leaf_count);
  for (size_t i = 0; i < replay.sinks.size(); ++i) {
    if (replay.sinks[i]) gradients[i] = std::move(replay.sinks[i]->gradient);
  }
  return gradients;
}

// With chosen inputs nothing else may accumulate: all gradients travel along this node's edges.
variable_list DifferentiateChosen(const AutogradContext& context, const Roots& roots,
                                  const variable_list& leaves) {
  variable_list gradients(leaves.size());
  variable_list wanted;
  std::vector<size_t> positions;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!leaves[i].defined() || !leaves[i].requires_grad()) continue;
    if (!context.needs_input_grad(i)) continue;
    wanted.push_back(leaves[i]);
    positions.push_back(i);
  }
  if (wanted.empty()) return gradients;
  const variable_list results =
      torch::autograd::grad(roots.outputs, wanted, roots.gradients, /*retain_graph=*/false,
                            /*create_graph=*/false, /*allow_unused=*/true);
  for (size_t i = 0; i < results.size(); ++i) gradients[positions[i]] = results[i];
  return gradients;
}

struct CheckpointFunction : torch::autograd::Function<CheckpointFunction> {
  // The first run is over when this is called: only then all parameters are known.
  static variable_list forward(AutogradContext* context,
                               const c10::intrusive_ptr<CheckpointedCall>& call,
                               const variable_list& outputs, at::TensorList tensors) {
    // Parameters are saved for their version numbers only.
    context->save_for_backward(tensors.vec());
    context->set_materialize_grads(false);
    context->saved_data[kCallKey] = c10::IValue::make_capsule(call);
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto call = c10::static_intrusive_pointer_cast<CheckpointedCall>(
        context->saved_data.at(kCallKey).toCapsule());
    variable_list leaves = context->get_saved_variables();
    variable_list results(kPlainArguments + leaves.size());
    if (!AnyDefined(gradients)) return results;
    const Replay replay = ReplayOf({leaves.data(), call->input_count});
    std::copy(replay.inputs.begin(), replay.inputs.end(), leaves.begin());
    variable_list outputs;
    {
      const c10::AutoGradMode with_grad(true);
      const ReplayGenerators generators(call->generators, replay.inputs);
      outputs = call->function(replay.inputs);
    }
    const Roots roots = RootsOf(outputs, gradients);
    if (roots.outputs.empty()) return results;
    variable_list found = torch::autograd::get_current_graph_task_exec_info()->empty()
                              ? DifferentiateAll(roots, replay, leaves.size())
                              : DifferentiateChosen(*context, roots, leaves);
    std::move(found.begin(), found.end(), results.begin() + kPlainArguments);
    return results;
  }
};

}  // namespace

std::vector<at::Tensor> Checkpoint(const BackwardTracker& tracker, TensorFunction function,
                                   std::vector<at::Tensor> inputs, at::TensorList parameters) {
  if (!c10::GradMode::is_enabled()) return function(inputs);
  auto call = c10::make_intrusive<CheckpointedCall>(function, inputs);
  variable_list tensors = inputs;
  tensors.insert(tensors.end(), parameters.begin(), parameters.end());
  variable_list outputs;
  {
    const CallRecord record(tracker);
    const c10::AutoGradMode no_grad(false);
    outputs = function(inputs);
    for (const at::Tensor& parameter : record.Parameters()) tensors.push_back(parameter);
  }
  // A tensor that comes twice gets its gradient once: the others are dropped, inputs are kept.
  variable_list leaves(tensors.begin(), tensors.begin() + call->input_count);
  std::unordered_set<at::TensorImpl*> seen;
  for (size_t i = call->input_count; i < tensors.size(); ++i) {
    const bool is_new = seen.insert(tensors[i].unsafeGetTensorImpl()).second;
    if (is_new && tensors[i].requires_grad()) leaves.push_back(tensors[i]);
  }
  return CheckpointFunction::apply(call, outputs, at::TensorList(leaves));
}

}  // namespace zerod
