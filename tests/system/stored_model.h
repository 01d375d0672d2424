#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace zerod {

/// Where a tensor of a checkpoint lies, read without any code of ours.
struct StoredTensor {
  std::string path;
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t offset_bytes = 0;
  int64_t size_bytes = 0;
};

/// Tensors of a folder's model.safetensors, or of the files that its index names, by name.
std::map<std::string, StoredTensor> ReadStoredModel(const std::string& folder);

/// Whether two tensors have the same type, shape and bytes.
bool SameTensor(const StoredTensor& one, const StoredTensor& other);

/// Size of a GPT-NeoX model that WriteModel makes.
struct ModelShape {
  int64_t vocab_size = 96;
  int64_t hidden_size = 32;
  int64_t layers = 3;
  int64_t heads = 4;
  int files = 1;         ///< safetensors files; more than one with an index; 0: config.json only
  double dropout = 0.0;  ///< of attention and hidden states
};

/// Writes config.json and float32 weights by a closed formula, file by file. Returns their bytes.
int64_t WriteModel(const std::string& folder, const ModelShape& shape);

/// Writes `count` little-endian 16-bit tokens below `vocab_size` by a closed formula.
void WriteTokens(const std::string& path, int64_t count, int64_t vocab_size);

}  // namespace zerod
