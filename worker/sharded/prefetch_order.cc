#include "worker/sharded/prefetch_order.h"

#include <algorithm>

namespace zerod {

void PrefetchOrder::BeginPass(bool training) {
  if (last_.second != kNone) table()[last_] = kNone;
  training_ = training;
  last_ = {kNone, kNone};
}

void PrefetchOrder::Expect(const std::vector<size_t>& layers) {
  if (!table().empty()) return;
  Key at{kNone, kNone};
  for (size_t layer : layers) {
    table()[at] = layer;
    at = {at.second, layer};
  }
  table()[at] = kNone;
}

std::vector<size_t> PrefetchOrder::Follow(const Table& table, Key at, size_t depth) {
  std::vector<size_t> next;
  const size_t called = at.second;
  // A cycle of calls would go round for ever: every step either adds a layer or uses up a try.
  for (size_t tries = 2 * depth + 2; tries > 0 && next.size() < depth; --tries) {
    const auto found = table.find(at);
    if (found == table.end() || found->second == kNone) break;
    const size_t layer = found->second;
    if (layer != called && std::ranges::find(next, layer) == next.end()) next.push_back(layer);
    at = {at.second, layer};
  }
  return next;
}

std::vector<size_t> PrefetchOrder::Call(size_t layer, size_t depth) {
  table()[last_] = layer;
  last_ = {last_.second, layer};
  return Follow(table(), last_, depth);
}

std::vector<size_t> PrefetchOrder::First(size_t depth) const {
  return Follow(training_table_, {kNone, kNone}, depth);
}

bool PrefetchOrder::AtEnd() const {
  const auto found = table().find(last_);
  return found != table().end() && found->second == kNone;
}

}  // namespace zerod
