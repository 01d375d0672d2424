#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/neox/config.h"

namespace zerod::neox {

/// One parameter of the model as published: its name in model.safetensors, its shape (row-major)
/// and the distribution of its initial values.
struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  double mean = 0;
  double deviation = 0;  // 0: every element is `mean`

  int64_t numel() const;
};

/// The parameters of each kind of layer, in a fixed order. With tied embeddings the head has no
/// embed_out.weight of its own.
std::vector<TensorSpec> EmbeddingTensors(const Config& config);
std::vector<TensorSpec> BlockTensors(const Config& config, int64_t block);
std::vector<TensorSpec> HeadTensors(const Config& config);

/// All of the above, from embedding to head.
std::vector<TensorSpec> ModelTensors(const Config& config);

/// out[i] = initial value of element first_index + i: the same for a seed whoever asks.
void FillInitialValues(const TensorSpec& spec, uint64_t seed, uint64_t first_index,
                       std::span<float> out);

/// "[96, 32]"
std::string ShapeText(std::span<const int64_t> shape);

}  // namespace zerod::neox
