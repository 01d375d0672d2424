#include "worker/train/token_draw.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "proto/contract/error.h"

namespace zerod::train {
namespace {

/// The indices that may be drawn, the most likely first if any option asks for an order.
std::vector<int64_t> Candidates(std::span<const float> logits, const DrawOptions& options) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const bool cut = options.top_k > 0 && options.top_k < static_cast<int64_t>(order.size());
  if (!cut && options.top_p >= 1) return order;
  const auto more_likely = [&](int64_t a, int64_t b) {
    const float left = logits[static_cast<size_t>(a)];
    const float right = logits[static_cast<size_t>(b)];
    return left != right ? left > right : a < b;
  };
  const auto end = cut ? order.begin() + options.top_k : order.end();
  std::partial_sort(order.begin(), end, order.end(), more_likely);
  order.erase(end, order.end());
  return order;
}

}  // namespace

int64_t DrawToken(std::span<const float> logits, const DrawOptions& options,
                  std::mt19937_64& random) {
  ZEROD_CHECK(!logits.empty(), "no logits");
  const auto highest = std::ranges::max_element(logits);
  if (options.temperature == 0) return highest - logits.begin();
  const std::vector<int64_t> candidates = Candidates(logits, options);
  std::vector<double> sums;
  double sum = 0;
  for (const int64_t candidate : candidates) {
    const double logit = logits[static_cast<size_t>(candidate)];
    sum += std::exp((logit - *highest) / options.temperature);
    sums.push_back(sum);
  }
  if (options.top_p < 1) {
    const auto last = std::ranges::lower_bound(sums, options.top_p * sum);
    sums.erase(last + (last == sums.end() ? 0 : 1), sums.end());
  }
  const double point = static_cast<double>(random() >> 11) * 0x1p-53 * sums.back();
  const auto found = static_cast<size_t>(std::ranges::upper_bound(sums, point) - sums.begin());
  return candidates[std::min(found, sums.size() - 1)];
}

}  // namespace zerod::train
