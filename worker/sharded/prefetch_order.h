#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace zerod {

/// Learns in which order layers are called and says which come next. A layer's successor is the one
/// that followed it last time after the same predecessor, so a repeated layer is told apart by
/// where it comes from. Depends on the calls alone: all ranks predict alike. Pure.
class PrefetchOrder {
 public:
  /// A pass begins: forward of a micro-batch or an evaluation. Training and evaluation learn apart.
  void BeginPass(bool training);

  /// Says before the first call of a pass that it will probably call these layers in this order.
  /// Only believed as long as no pass of this kind was seen.
  void Expect(const std::vector<size_t>& layers);

  /// The layer is called now. Returns the layers expected after it, nearest first, at most `depth`,
  /// each once and none of them `layer`.
  std::vector<size_t> Call(size_t layer, size_t depth);

  /// The layers expected at the beginning of the next training pass, at most `depth`.
  std::vector<size_t> First(size_t depth) const;

  /// Whether nothing is expected after the layer that was called last.
  bool AtEnd() const;

 private:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();
  using Key = std::pair<size_t, size_t>;  // predecessor, layer
  using Table = std::map<Key, size_t>;    // -> successor, or kNone at the end of a pass

  const Table& table() const { return training_ ? training_table_ : evaluation_table_; }
  Table& table() { return training_ ? training_table_ : evaluation_table_; }
  static std::vector<size_t> Follow(const Table& table, Key at, size_t depth);

  Table training_table_;
  Table evaluation_table_;
  bool training_ = true;
  Key last_{kNone, kNone};
};

}  // namespace zerod
