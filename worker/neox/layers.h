#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "worker/neox/checkpoint.h"
#include "worker/neox/config.h"
#include "worker/neox/forward_context.h"
#include "worker/neox/rotary.h"
#include "worker/neox/tensor_spec.h"

namespace zerod::neox {

// Shapes here: B samples, T positions, C = hidden_size, V = vocab_size.

/// What the layers of one model share. A plain value; copies mean the same objects.
struct LayerContext {
  DType dtype = DType::kFloat32;  ///< of parameters and hidden states: kFloat32 or kBFloat16
  std::shared_ptr<RotaryTable> rotary = nullptr;            ///< null: each block makes its own
  std::shared_ptr<const ForwardContext> forward = nullptr;  ///< null: every forward evaluates
};

/// For a model that is trained or sampled from: with a table and a context. The caller keeps
/// `forward` to say what each forward is for.
LayerContext MakeLayerContext(const Config& config, DType dtype,
                              std::shared_ptr<const ForwardContext> forward);

/// One layer of the model: what is gathered, reduced and updated together. A model is the chain
/// embedding, blocks, head. In bfloat16 every operation rounds its result, as in the published
/// implementation; norms, softmax and activations compute in float32 inside. Parameters are
/// allocated (64-byte aligned, of the context's dtype) but not given values until Initialize() or
/// Load(); whoever binds them to other memory needs neither. Their names inside the module are the
/// published ones without the prefix "gpt_neox." or "gpt_neox.layers.N.". Not thread-safe.
class Layer : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& input) = 0;

  /// Names and shapes, in the order of parameters(); specs()[i].name is the published name of
  /// parameter i.
  const std::vector<TensorSpec>& specs() const { return specs_; }

  /// The parameter of a published name, or of its name inside the module.
  const at::Tensor& parameter(const std::string& name) const;

  /// Initial values that depend on the seed and the published names alone: in bfloat16 those of
  /// float32, rounded.
  void Initialize(uint64_t seed);

  /// Values from a file.
  void Load(const Checkpoint& checkpoint);

 protected:
  Layer(const std::string& prefix, std::vector<TensorSpec> specs, const LayerContext& context);

  bool training() const { return forward_ != nullptr && forward_->training(); }

  /// Null unless decoding.
  KeyValueCache* cache() const { return forward_ != nullptr ? forward_->cache() : nullptr; }

  /// Undefined if the layer has no such parameter (a bias that the config leaves out).
  at::Tensor Find(const std::string& local_name) const;

 private:
  std::string prefix_;
  std::vector<TensorSpec> specs_;
  std::shared_ptr<const ForwardContext> forward_;
  std::vector<at::Tensor> parameters_;  // as specs_
};

/// Token ids [B, T] int64 -> hidden states [B, T, C].
class Embedding : public Layer {
 public:
  explicit Embedding(const Config& config, const LayerContext& context = {});

  /// Throws Error(kDataLoss) with the id and its place if an id is not in the vocabulary.
  at::Tensor forward(const at::Tensor& tokens) override;

  const at::Tensor& weight() const { return weight_; }

 private:
  double dropout_;
  at::Tensor weight_;  // [V, C]
};

/// Attention and MLP: [B, T, C] -> [B, T, C]. T, with the positions decoded before, is at most
/// max_position_embeddings.
class Block : public Layer {
 public:
  /// `index` counts from 0.
  Block(const Config& config, int64_t index, const LayerContext& context = {});

  at::Tensor forward(const at::Tensor& hidden) override;

 private:
  struct Linear {
    at::Tensor weight;
    at::Tensor bias;  // undefined if there is none
  };

  Linear FindLinear(const std::string& module) const;
  at::Tensor Attention(const at::Tensor& normal, int64_t batch);
  at::Tensor Mix(const Heads& heads) const;
  at::Tensor Mlp(const at::Tensor& normal) const;
  at::Tensor Norm(const at::Tensor& rows, const Linear& norm) const;

  const Config config_;
  const int64_t index_;
  std::shared_ptr<RotaryTable> rotary_;
  Linear input_norm_;
  Linear attention_norm_;
  Linear query_key_value_;
  Linear dense_;
  Linear up_;
  Linear down_;
};

/// Final norm and projection to the vocabulary: [B, T, C] -> logits [B, T, V], float32 whatever the
/// dtype of the layers; when decoding, of the last position only: [B, 1, V].
class Head : public Layer {
 public:
  /// With tied embeddings `tied_weight` is the embedding's weight: the head uses it and doesn't
  /// count it among its parameters. Otherwise it must be undefined.
  explicit Head(const Config& config, at::Tensor tied_weight = {},
                const LayerContext& context = {});

  at::Tensor forward(const at::Tensor& hidden) override;

 private:
  double epsilon_;
  at::Tensor norm_weight_;
  at::Tensor norm_bias_;
  at::Tensor projection_;  // [V, C]
};

}  // namespace zerod::neox
