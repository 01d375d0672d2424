#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zerod {

/// Element type of a stored tensor.
enum class DType : uint8_t { kFloat32 = 1, kBFloat16 = 2, kFloat16 = 3 };

/// Bytes of one element.
int64_t SizeOf(DType dtype);
const char* DTypeName(DType dtype);

/// The mesh is dp x tp; rank = dp_index * tp + tp_index, so tp neighbours share a node first.
struct Mesh {
  int32_t dp = 1;
  int32_t tp = 1;

  int32_t World() const { return dp * tp; }
  int32_t DpIndex(int32_t rank) const { return rank / tp; }
  int32_t TpIndex(int32_t rank) const { return rank % tp; }
  bool operator==(const Mesh&) const = default;
};

/// One tensor as a worker registers it.
struct TensorSpec {
  std::string name;            ///< unique in the job, e.g. "gpt_neox.embed_in.weight"
  std::vector<int64_t> shape;  ///< empty for a scalar
  DType dtype = DType::kFloat32;
  bool trainable = true;
  float lr_scale = 1.0f;  ///< learning-rate multiplier of its parameter group
  bool decay = true;      ///< whether weight decay applies

  bool operator==(const TensorSpec&) const = default;
};

/// One layer as a worker registers it: what is gathered, reduced and updated together.
struct LayerSpec {
  std::string name;  ///< unique in the job
  std::vector<TensorSpec> tensors;
  DType reduce_dtype = DType::kFloat32;  ///< of gradient slots and accumulators
  DType master_dtype = DType::kFloat32;  ///< of masters and moments

  bool operator==(const LayerSpec&) const = default;
};

/// Where one tensor lies. Offsets are aligned to 64 bytes.
struct TensorPlan {
  int32_t chunk = 0;         ///< index into LayerPlan::chunks
  int64_t offset_numel = 0;  ///< first element inside the chunk
  int64_t numel = 0;
};

/// The tensors of a layer with the same trainability and dtype, flat, zero-padded to dp shards.
struct ChunkPlan {
  DType dtype = DType::kFloat32;
  bool trainable = true;
  int64_t padded_numel = 0;  ///< dp * shard_numel
  int64_t shard_numel = 0;   ///< a multiple of the page size in the smallest stored dtype
  /// First byte of this chunk in a gradient slot (reduce_dtype elements); -1 for a frozen chunk.
  int64_t slot_offset_bytes = -1;
  /// First byte of this chunk in a staging buffer, whose elements have the size of `dtype` or, when
  /// gradients or moments are read, of float32; large enough for both.
  int64_t stage_offset_bytes = 0;

  int64_t RegionBytes() const { return padded_numel * SizeOf(dtype); }
};

/// The daemon's answer to a registration. Only the daemon plans; the worker binds what it is told
/// and never divides by a world size.
struct LayerPlan {
  LayerSpec spec;
  std::vector<ChunkPlan> chunks;
  std::vector<TensorPlan> tensors;  ///< same order as spec.tensors
  int64_t slot_bytes = 0;           ///< bytes of a gradient slot this layer needs
  int64_t stage_bytes = 0;          ///< bytes of a staging buffer this layer needs
  int64_t gathered_bytes = 0;       ///< bytes of all regions: what window and cache count
};

/// Every region starts with one header page; data begins here. Bytes.
inline constexpr int64_t kRegionHeaderBytes = 4096;

}  // namespace zerod
