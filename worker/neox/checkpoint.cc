#include "worker/neox/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>
#include <vector>

#include "proto/contract/error.h"
#include "worker/neox/tensor_spec.h"

namespace zerod::neox {
namespace {

constexpr std::string_view kEmbedding = "gpt_neox.embed_in.weight";
constexpr std::string_view kHead = "embed_out.weight";
constexpr std::string_view kHeadAlias = "lm_head.weight";

[[noreturn]] void Fail(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::kFailedPrecondition, Concat(path, ": ", why));
}

/// Buffers that releases before 4.30 or so saved with each block; they can be computed.
bool IsOldBuffer(std::string_view name, int64_t blocks) {
  constexpr std::string_view kPrefix = "gpt_neox.layers.";
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  int64_t block = -1;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), block);
  if (parsed.ec != std::errc() || block < 0 || block >= blocks) return false;
  name.remove_prefix(static_cast<size_t>(parsed.ptr - name.data()));
  return name == ".attention.bias" || name == ".attention.masked_bias" ||
         name == ".attention.rotary_emb.inv_freq";
}

bool IsFloatingPoint(const std::string& dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

void CheckTensor(const std::string& path, const std::string& stored_name, const TensorSpec& spec,
                 const Safetensors::Entry& entry) {
  if (entry.shape != spec.shape) {
    Fail(path, Concat("tensor '", stored_name, "' has shape ", ShapeText(entry.shape),
                      ", but config.json makes it ", ShapeText(spec.shape)));
  }
  if (!IsFloatingPoint(entry.dtype)) {
    Fail(path, Concat("tensor '", stored_name, "' has type ", entry.dtype,
                      "; F32, F16 and BF16 can be read"));
  }
}

}  // namespace

Checkpoint::Checkpoint(const std::string& path, const Config& config) : file_(path) {
  const auto& tensors = file_.tensors();
  std::vector<TensorSpec> specs = ModelTensors(config);
  const bool aliased = tensors.contains(std::string(kHeadAlias));
  if (aliased && tensors.contains(std::string(kHead))) {
    Fail(path, Concat("has both '", kHead, "' and '", kHeadAlias, "'; remove one"));
  }
  const std::string stored_head(aliased ? kHeadAlias : kHead);
  if (config.tie_word_embeddings && tensors.contains(stored_head)) {
    specs.push_back({std::string(kHead), {config.vocab_size, config.hidden_size}});
  }
  for (const TensorSpec& spec : specs) {
    const std::string stored_name = spec.name == kHead ? stored_head : spec.name;
    const auto found = tensors.find(stored_name);
    if (found == tensors.end()) {
      Fail(path, Concat("tensor '", spec.name, "' of shape ", ShapeText(spec.shape),
                        " is missing; does config.json belong to this file?"));
    }
    CheckTensor(path, stored_name, spec, found->second);
    stored_names_[spec.name] = stored_name;
  }
  for (const auto& [name, entry] : tensors) {
    const bool known = stored_names_.contains(name == kHeadAlias ? std::string(kHead) : name);
    if (!known && !IsOldBuffer(name, config.num_hidden_layers)) {
      Fail(path, Concat("tensor '", name, "' of shape ", ShapeText(entry.shape),
                        " is unknown to the model that config.json describes"));
    }
  }
  if (config.tie_word_embeddings && stored_names_.contains(std::string(kHead))) CheckTiedHead();
}

void Checkpoint::Read(const std::string& name, std::span<float> out) const {
  const auto found = stored_names_.find(name);
  ZEROD_CHECK(found != stored_names_.end(), "no tensor ", name, " in ", file_.path());
  file_.Read(found->second, out);
}

void Checkpoint::CheckTiedHead() const {
  const Safetensors::Entry& entry = file_.tensors().at(std::string(kEmbedding));
  const auto numel = static_cast<size_t>(entry.shape[0] * entry.shape[1]);
  std::vector<float> embedding(numel);
  std::vector<float> head(numel);
  Read(std::string(kEmbedding), embedding);
  Read(std::string(kHead), head);
  if (std::memcmp(embedding.data(), head.data(), numel * sizeof(float)) != 0) {
    Fail(file_.path(), Concat("'", stored_names_.at(std::string(kHead)), "' differs from '",
                              kEmbedding, "', but config.json ties them (tie_word_embeddings)"));
  }
}

}  // namespace zerod::neox
