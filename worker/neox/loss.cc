#include "worker/neox/loss.h"

#include <algorithm>

#include <ATen/Parallel.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include "proto/contract/error.h"

namespace zerod::neox {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Calls function(first row, rows) for parts of [rows, V] that fit into the caches of the threads:
/// then only the first of the passes over a part goes to memory.
template <typename Function>
void ForEachPart(const at::Tensor& rows, const Function& function) {
  constexpr int64_t kElementsPerThread = 32 * 1024;
  const int64_t step =
      std::max<int64_t>(1, kElementsPerThread * at::get_num_threads() / rows.size(1));
  for (int64_t first = 0; first < rows.size(0); first += step) {
    function(first, std::min(step, rows.size(0) - first));
  }
}

class CrossEntropyFunction : public torch::autograd::Function<CrossEntropyFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits,
                            const at::Tensor& targets) {
    const int64_t vocabulary = logits.size(-1);
    const at::Tensor rows = logits.detach().reshape({-1, vocabulary});
    const at::Tensor ids = targets.reshape({-1});
    const int64_t* id = ids.const_data_ptr<int64_t>();
    double sum = 0;
    ForEachPart(rows, [&](int64_t first, int64_t count) {
      const at::Tensor part = at::_log_softmax(rows.narrow(0, first, count), 1, false);
      const float* data = part.const_data_ptr<float>();
      for (int64_t row = 0; row < count; ++row) {
        if (id[first + row] >= 0) sum -= data[row * vocabulary + id[first + row]];
      }
    });
    context->saved_data["rows"] = rows;
    context->saved_data["ids"] = ids;
    context->saved_data["shape"] = logits.sizes().vec();
    return at::scalar_tensor(sum / static_cast<double>(rows.size(0)), logits.options());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    auto& saved = context->saved_data;
    TORCH_CHECK(saved.count("rows") == 1,
                "CrossEntropy: second backward, but the first one used up the logits");
    const at::Tensor rows = saved["rows"].toTensor();
    const at::Tensor ids = saved["ids"].toTensor();
    const auto shape = saved["shape"].toIntVector();
    saved.erase("rows");
    const auto scale =
        static_cast<float>(gradients[0].item<double>() / static_cast<double>(rows.size(0)));
    const int64_t* id = ids.const_data_ptr<int64_t>();
    ForEachPart(rows, [&](int64_t first, int64_t count) {
      const at::Tensor part = rows.narrow(0, first, count);
      part.copy_(at::_softmax(part, 1, false).mul_(scale));
      float* data = part.mutable_data_ptr<float>();
      for (int64_t row = 0; row < count; ++row) {
        float* const gradient = data + row * rows.size(1);
        if (id[first + row] >= 0) {
          gradient[id[first + row]] -= scale;
        } else {
          std::fill_n(gradient, rows.size(1), 0.0f);
        }
      }
    });
    return {rows.view(shape), at::Tensor()};
  }
};

}  // namespace

at::Tensor CrossEntropy(const at::Tensor& logits, const at::Tensor& targets) {
  ZEROD_CHECK(logits.scalar_type() == at::kFloat && targets.scalar_type() == at::kLong,
              "logits must be float32 and targets int64");
  ZEROD_CHECK(logits.numel() == targets.numel() * logits.size(-1) && targets.numel() > 0,
              logits.numel(), " logits don't fit ", targets.numel(), " targets");
  return CrossEntropyFunction::apply(logits, targets);
}

}  // namespace zerod::neox
