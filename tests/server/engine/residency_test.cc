#include "server/engine/residency.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace zerod {
namespace {

/// The rules, written down again without any bookkeeping: everything is derived from one list of
/// layers in the order in which their last lease ended.
class Model {
 public:
  Model(int64_t bound, std::vector<Residency::LayerSize> sizes)
      : bound_(bound), sizes_(std::move(sizes)), leases_(sizes_.size()), state_(sizes_.size()) {}

  bool Gather(int layer) {
    std::erase(released_, layer);
    ++leases_[layer];
    const bool hit = state_[layer] == 2;
    state_[layer] = 2;
    return hit;
  }
  std::vector<int> Release(int layer) {
    if (--leases_[layer] == 0) released_.push_back(layer);
    return Evict();
  }
  std::vector<int> Step() {
    for (size_t layer = 0; layer < sizes_.size(); ++layer) {
      if (leases_[layer] > 0) released_.push_back(static_cast<int>(layer));
      leases_[layer] = 0;
      if (sizes_[layer].trainable) state_[layer] = std::min(state_[layer], 1);
    }
    return Evict();
  }
  void Invalidate(int layer) { state_[layer] = std::min(state_[layer], 1); }
  bool leased(int layer) const { return leases_[layer] > 0; }
  int64_t cached() const {
    int64_t bytes = 0;
    for (int layer : released_) bytes += sizes_[layer].bytes;
    return bytes;
  }
  int64_t resident() const {
    int64_t bytes = 0;
    for (size_t i = 0; i < sizes_.size(); ++i) bytes += state_[i] > 0 ? sizes_[i].bytes : 0;
    return bytes;
  }

 private:
  std::vector<int> Evict() {
    std::vector<int> evicted;
    while (cached() > bound_) {
      evicted.push_back(released_.front());
      state_[released_.front()] = 0;
      released_.erase(released_.begin());
    }
    return evicted;
  }
  int64_t bound_;
  std::vector<Residency::LayerSize> sizes_;
  std::vector<int> leases_;
  std::vector<int> state_;  // 0 absent, 1 stale, 2 fresh
  std::vector<int> released_;
};

TEST(ResidencyTest, AgreesWithTheModelOnRandomSequences) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    std::vector<Residency::LayerSize> sizes(6);
    for (int i = 0; i < 6; ++i) sizes[i] = {int64_t{100} * (1 + i), random() % 2 == 0};
    const int64_t bound = static_cast<int64_t>(random() % 1500);
    Residency residency(bound, sizes);
    Model model(bound, sizes);
    for (int i = 0; i < 500; ++i) {
      const int layer = static_cast<int>(random() % sizes.size());
      switch (random() % 8) {
        case 0:
          ASSERT_EQ(residency.Step(), model.Step());
          break;
        case 1:
          residency.Invalidate(layer);
          model.Invalidate(layer);
          break;
        case 2:
        case 3:
        case 4:
          if (!model.leased(layer)) break;
          ASSERT_EQ(residency.Release(layer), model.Release(layer));
          break;
        default:
          ASSERT_EQ(residency.Gather(layer), model.Gather(layer));
      }
      ASSERT_EQ(residency.resident_bytes(), model.resident());
      ASSERT_EQ(residency.cached_bytes(), model.cached());
      ASSERT_LE(residency.cached_bytes(), bound);
    }
  }
}

TEST(ResidencyTest, WithoutACacheNothingStaysAfterTheLastLease) {
  Residency residency(0, {{100, true}});
  EXPECT_FALSE(residency.Gather(0));
  EXPECT_TRUE(residency.Gather(0));
  EXPECT_TRUE(residency.Release(0).empty());
  EXPECT_EQ(residency.Release(0), std::vector<int>{0});
  EXPECT_EQ(residency.resident_bytes(), 0);
}

TEST(ResidencyDeathTest, AReleaseTooManyIsABug) {
  Residency residency(0, {{100, true}});
  EXPECT_DEATH(residency.Release(0), "released more often than gathered");
}

}  // namespace
}  // namespace zerod
