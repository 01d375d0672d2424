#include "server/engine/residency.h"

#include "proto/contract/error.h"

namespace zerod {

Residency::Residency(int64_t cache_bytes, std::vector<LayerSize> layers)
    : bound_bytes_(cache_bytes) {
  for (const LayerSize& size : layers) layers_.push_back({size});
}

bool Residency::Gather(int index) {
  Layer& layer = layers_[index];
  if (layer.leases++ == 0) {
    if (layer.bytes == Bytes::kAbsent) {
      resident_bytes_ += layer.size.bytes;
    } else {
      cached_.remove(index);
      cached_bytes_ -= layer.size.bytes;
    }
  }
  const bool hit = layer.bytes == Bytes::kFresh;
  layer.bytes = Bytes::kFresh;
  return hit;
}

void Residency::Cache(int index) {
  cached_.push_back(index);
  cached_bytes_ += layers_[index].size.bytes;
}

std::vector<int> Residency::Evict() {
  std::vector<int> evicted;
  while (cached_bytes_ > bound_bytes_) {
    const int index = cached_.front();
    cached_.pop_front();
    Layer& layer = layers_[index];
    layer.bytes = Bytes::kAbsent;
    cached_bytes_ -= layer.size.bytes;
    resident_bytes_ -= layer.size.bytes;
    evicted.push_back(index);
  }
  return evicted;
}

std::vector<int> Residency::Release(int index) {
  Layer& layer = layers_[index];
  ZEROD_CHECK(layer.leases > 0, "layer ", index, " is released more often than gathered");
  if (--layer.leases > 0) return {};
  Cache(index);
  return Evict();
}

std::vector<int> Residency::Step() {
  for (size_t index = 0; index < layers_.size(); ++index) {
    Layer& layer = layers_[index];
    if (layer.leases > 0) Cache(static_cast<int>(index));
    layer.leases = 0;
    if (layer.size.trainable) Invalidate(static_cast<int>(index));
  }
  return Evict();
}

void Residency::Invalidate(int index) {
  if (layers_[index].bytes == Bytes::kFresh) layers_[index].bytes = Bytes::kStale;
}

}  // namespace zerod
