#include "worker/train/text_sampler.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

namespace zerod::train {
namespace {

/// Draws an index with probability proportional to exp(logit / temperature).
int64_t Draw(std::span<const float> logits, double temperature, std::mt19937_64& random) {
  const auto highest = std::ranges::max_element(logits);
  if (temperature == 0) return highest - logits.begin();
  std::vector<double> sums;
  double sum = 0;
  for (const float logit : logits) {
    sum += std::exp((static_cast<double>(logit) - *highest) / temperature);
    sums.push_back(sum);
  }
  // The distributions of <random> differ between libraries; this doesn't.
  const double point = static_cast<double>(random() >> 11) * 0x1p-53 * sum;
  const auto found = std::ranges::upper_bound(sums, point);
  return std::min<int64_t>(found - sums.begin(), static_cast<int64_t>(sums.size()) - 1);
}

at::Tensor LastTokens(const std::string& text, int64_t context) {
  const auto count = std::min<int64_t>(context, static_cast<int64_t>(text.size()));
  const at::Tensor tokens = at::empty({1, count}, at::kLong);
  const auto* first = reinterpret_cast<const unsigned char*>(text.data() + text.size()) - count;
  std::copy(first, first + count, tokens.mutable_data_ptr<int64_t>());
  return tokens;
}

}  // namespace

std::string SampleText(const SampleOptions& options, ShardedSequential& model) {
  const c10::NoGradGuard no_grad;
  std::mt19937_64 random(options.seed);
  std::string text = options.prompt.empty() ? "\n" : options.prompt;
  for (int64_t i = 0; i < options.tokens; ++i) {
    const at::Tensor logits = model.Forward(LastTokens(text, options.context));
    const at::Tensor last = logits.select(1, -1).contiguous();
    const std::span<const float> row(last.const_data_ptr<float>(),
                                     static_cast<size_t>(last.numel()));
    // The vocabulary may be padded; what lies beyond a byte can't be text.
    text += static_cast<char>(
        Draw(row.first(std::min<size_t>(row.size(), 256)), options.temperature, random));
  }
  return text;
}

}  // namespace zerod::train
