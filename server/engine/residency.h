#pragma once

#include <cstdint>
#include <list>
#include <vector>

namespace zerod {

/// Which layers' remote segments are resident on a node. Moves in ticket order and knows nothing of
/// time, so every node hits and misses alike. Pure, not thread-safe.
class Residency {
 public:
  struct LayerSize {
    int64_t bytes = 0;       ///< the whole layer's, as window and cache count
    bool trainable = false;  ///< its bytes change with a step
  };
  Residency(int64_t cache_bytes, std::vector<LayerSize> layers);

  /// A gather takes a lease. Returns whether the bytes are there already (a hit moves nothing).
  bool Gather(int layer);
  /// Gives a lease back. Returns the layers to evict, least recently used first.
  std::vector<int> Release(int layer);
  /// Ends all leases and makes trainable layers stale. Returns the layers to evict.
  std::vector<int> Step();
  /// The layer was written: what others hold of it is stale.
  void Invalidate(int layer);

  int64_t resident_bytes() const { return resident_bytes_; }  ///< leased and cached
  int64_t cached_bytes() const { return cached_bytes_; }

 private:
  enum class Bytes { kAbsent, kStale, kFresh };
  struct Layer {
    LayerSize size;
    Bytes bytes = Bytes::kAbsent;
    int leases = 0;
  };
  void Cache(int layer);
  std::vector<int> Evict();

  const int64_t bound_bytes_;
  std::vector<Layer> layers_;
  std::list<int> cached_;  // least recently used first
  int64_t cached_bytes_ = 0;
  int64_t resident_bytes_ = 0;
};

}  // namespace zerod
