#include "worker/neox/key_value_cache.h"

#include <ATen/ops/empty.h>

#include "proto/contract/error.h"

namespace zerod::neox {

KeyValueCache::KeyValueCache(const Config& config, int64_t capacity)
    : blocks_(static_cast<size_t>(config.num_hidden_layers)), capacity_(capacity) {
  ZEROD_CHECK(capacity > 0, "capacity of ", capacity, " positions");
}

KeyValueCache::Past KeyValueCache::Append(int64_t block, const at::Tensor& key,
                                          const at::Tensor& value) {
  const int64_t count = key.size(2);
  ZEROD_CHECK(key.size(0) == 1 && length_ + count <= capacity_, "batch of ", key.size(0), ", ",
              length_, " + ", count, " positions of ", capacity_);
  Past& kept = blocks_.at(static_cast<size_t>(block));
  if (!kept.key.defined()) {
    const std::vector<int64_t> shape = {1, key.size(1), capacity_, key.size(3)};
    kept = {at::empty(shape, key.options()), at::empty(shape, value.options())};
  }
  kept.key.narrow(2, length_, count).copy_(key);
  kept.value.narrow(2, length_, count).copy_(value);
  return {kept.key.narrow(2, 0, length_ + count), kept.value.narrow(2, 0, length_ + count)};
}

void KeyValueCache::Advance(int64_t positions) {
  length_ += positions;
  ZEROD_CHECK(length_ <= capacity_, length_, " positions of ", capacity_);
}

}  // namespace zerod::neox
