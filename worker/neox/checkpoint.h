#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "worker/neox/config.h"
#include "worker/neox/safetensors.h"

namespace zerod::neox {

/// The weights of a GPT-NeoX model in a model.safetensors with published names. The constructor
/// compares all names and shapes with the config, so that reading can only fail for reasons of the
/// disk. Accepts lm_head.weight for embed_out.weight and ignores the buffers of older files
/// (attention.bias, attention.masked_bias, attention.rotary_emb.inv_freq). Anything missing,
/// misshapen or unknown throws Error(kFailedPrecondition) with the tensor, what was expected and
/// what was found. With tied embeddings a stored head must equal the embedding.
/// Threads may read at the same time.
class Checkpoint {
 public:
  Checkpoint(const std::string& path, const Config& config);

  /// Reads the tensor of this published name (TensorSpec::name) as float32, row-major.
  void Read(const std::string& name, std::span<float> out) const;

 private:
  void CheckTiedHead() const;

  Safetensors file_;
  std::map<std::string, std::string> stored_names_;  // published name -> name in the file
};

}  // namespace zerod::neox
