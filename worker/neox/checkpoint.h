#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/file_range.h"
#include "worker/neox/config.h"
#include "worker/neox/safetensors.h"

namespace zerod::neox {

/// The weights of a GPT-NeoX model with published names, in DIR/model.safetensors or in the files
/// that DIR/model.safetensors.index.json lists (whose weight_map names for each tensor a file in
/// DIR; both must agree). The constructor compares all names and shapes with the config, so that
/// reading can only fail for reasons of the disk. Accepts lm_head.weight for embed_out.weight and
/// ignores the buffers of older files (attention.bias, attention.masked_bias,
/// attention.rotary_emb.inv_freq). Anything missing, misshapen or unknown throws
/// Error(kFailedPrecondition) with the tensor, what was expected and what was found; files that
/// can't be what they claim to be throw Error(kDataLoss). With tied embeddings a stored head must
/// equal the embedding. Threads may read at the same time.
class Checkpoint {
 public:
  /// Whether `folder` has weights that can be read. Throws Error(kFailedPrecondition) with what to
  /// do if it has them in another format only (pytorch_model.bin).
  static bool IsIn(const std::string& folder);

  /// `path` is such a folder or a single .safetensors file.
  Checkpoint(const std::string& path, const Config& config);

  /// Names as published: TensorSpec::name of the model's tensors and, if a tied head is stored,
  /// embed_out.weight.
  std::vector<std::string> names() const;

  /// The name that the file has for a tensor: another one for the head only.
  const std::string& stored_name(const std::string& name) const;

  DType stored_dtype(const std::string& name) const;

  /// Where a tensor's bytes lie. The path is absolute and free of symbolic links.
  FileRange Locate(const std::string& name) const;

  /// Reads out.size() elements from `first_index` on as float32, row-major.
  void Read(const std::string& name, uint64_t first_index, std::span<float> out) const;

 private:
  struct Place {
    const Safetensors* file;
    std::string stored_name;
  };

  const Place& Find(const std::string& name) const;
  void CheckTiedHead() const;

  std::string path_;
  std::deque<Safetensors> files_;
  std::map<std::string, Place> places_;  // by published name
};

}  // namespace zerod::neox
