#include "proto/contract/argument.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "proto/contract/error.h"
#include "proto/contract/operation.h"

namespace zerod {
namespace {

/// The shortest text that is read as the same number.
template <typename Number>
std::string Exact(Number number) {
  std::array<char, 40> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number);
  ZEROD_CHECK(error == std::errc(), "a number of more than 40 characters");
  return {text.data(), end};
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ", ") + Exact(size);
  return "[" + text + "]";
}

const char* ContentName(Content content) {
  switch (content) {
    case Content::kParameter:
      return "parameters";
    case Content::kGradient:
      return "gradients";
    case Content::kExpAvg:
      return "first moments";
    case Content::kExpAvgSq:
      return "second moments";
    case Content::kMaster:
      return "masters";
  }
  return "unknown";
}

class List {
 public:
  void Add(std::string what, std::string value) {
    if (bytes_ > kArgumentBytesMax) return;
    bytes_ += what.size() + value.size();
    arguments_.push_back({std::move(what), std::move(value)});
  }

  void AddLayer(const LayerSpec& spec) {
    Add("layer", Concat("'", spec.name, "'"));
    const std::string layer = Concat("layer '", spec.name, "' ");
    Add(layer + "number of tensors", Exact(spec.tensors.size()));
    Add(layer + "dtype of gradients", DTypeName(spec.reduce_dtype));
    Add(layer + "dtype of masters", DTypeName(spec.master_dtype));
    for (size_t i = 0; i < spec.tensors.size(); ++i) {
      const TensorSpec& tensor = spec.tensors[i];
      Add(Concat(layer, "tensor ", i, ": name"), Concat("'", tensor.name, "'"));
      const std::string here = Concat(layer, "tensor '", tensor.name, "': ");
      Add(here + "shape", ShapeText(tensor.shape));
      Add(here + "dtype", DTypeName(tensor.dtype));
      Add(here + "gradient", tensor.trainable ? "on" : "off (frozen)");
      Add(here + "learning-rate multiplier", Exact(tensor.lr_scale));
      Add(here + "weight decay", tensor.decay ? "on" : "off");
    }
  }

  void AddStep(const StepArguments& step) {
    Add("optimizer", step.optimizer == OptimizerKind::kAdamW ? "AdamW" : "SGD");
    Add("learning rate", Exact(step.learning_rate));
    Add("beta1", Exact(step.beta1));
    Add("beta2", Exact(step.beta2));
    Add("eps", Exact(step.eps));
    Add("weight decay", Exact(step.weight_decay));
    Add("largest gradient norm", Exact(step.max_grad_norm));
    Add("gradient divisor", Exact(step.gradient_divisor));
  }

  void AddImport(const std::vector<FileRange>& ranges) {
    Add("number of tensors", Exact(ranges.size()));
    for (size_t i = 0; i < ranges.size(); ++i) {
      const std::string tensor = Concat("tensor ", i, ": ");
      Add(tensor + "file", ranges[i].path);
      Add(tensor + "first byte", Exact(ranges[i].offset_bytes));
      Add(tensor + "dtype in the file", DTypeName(ranges[i].dtype));
    }
  }

  std::vector<Argument> Take() { return std::move(arguments_); }

 private:
  std::vector<Argument> arguments_;
  size_t bytes_ = 0;
};

}  // namespace

std::vector<Argument> ArgumentsOf(const Operation& operation) {
  List list;
  switch (operation.kind) {
    case OperationKind::kRegister:
      list.AddLayer(operation.layer_spec);
      break;
    case OperationKind::kStep:
      list.AddStep(operation.step);
      list.Add("number of values", Exact(operation.values.size()));
      break;
    case OperationKind::kScalar:
      list.Add("number of values", Exact(operation.values.size()));
      break;
    case OperationKind::kWrite:
    case OperationKind::kRead:
      list.Add("content", ContentName(operation.content));
      list.Add("source rank", Exact(operation.source_rank));
      break;
    case OperationKind::kImport:
      list.AddImport(operation.import_from);
      break;
    default:
      break;
  }
  return list.Take();
}

std::string FirstDifference(const std::vector<Argument>& one, const std::vector<Argument>& other) {
  const size_t common = std::min(one.size(), other.size());
  for (size_t i = 0; i < common; ++i) {
    if (one[i] == other[i]) continue;
    if (one[i].what == other[i].what) {
      return Concat(one[i].what, " ", one[i].value, " and ", other[i].value);
    }
    return Concat(one[i].what, " ", one[i].value, " and ", other[i].what, " ", other[i].value);
  }
  return {};
}

}  // namespace zerod
