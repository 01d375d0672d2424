#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/contract/plan.h"

namespace zerod::neox {

/// The element-wise function inside the MLP.
enum class Activation {
  kGelu,       // by the error function: gelu, gelu_python
  kGeluTanh,   // by tanh: gelu_new, gelu_fast, gelu_pytorch_tanh
  kQuickGelu,  // x · sigmoid(1.702 x): quick_gelu
  kRelu,
  kSilu,  // silu, swish
  kTanh,
};

/// Architecture of a GPT-NeoX model, as published beside its weights in config.json. Members carry
/// the names of that file. An object made by one of the functions below is consistent: sizes are
/// positive, heads divide the hidden size, rotary dimensions fit into a head. A plain value.
struct Config {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t intermediate_size = 0;
  int64_t max_position_embeddings = 2048;  // longest sequence, in tokens
  Activation hidden_act = Activation::kGelu;
  double rotary_pct = 0.25;  // part of each head that is rotated, 0 to 1
  double rotary_emb_base = 10000;
  double layer_norm_eps = 1e-5;
  double initializer_range = 0.02;  // standard deviation of initial weights
  double attention_dropout = 0;     // of attention probabilities, in training
  double hidden_dropout = 0;        // after embedding, attention and MLP, in training
  bool use_parallel_residual = true;
  bool attention_bias = true;
  bool tie_word_embeddings = false;
  DType dtype = DType::kFloat32;  // of the stored weights

  int64_t head_size() const { return hidden_size / num_attention_heads; }

  /// What the rotary frequencies are spread over: head_size · rotary_pct, rounded down.
  int64_t rotary_ndims() const;

  /// Pairs of elements that are rotated in each head. An odd rotary_ndims() counts as the next even
  /// number, as in the published implementation.
  int64_t rotary_pairs() const { return (rotary_ndims() + 1) / 2; }
};

/// Reads a config.json of model_type gpt_neox. Understands the older spelling (rotary_pct,
/// rotary_emb_base, torch_dtype) and the newer one (rope_parameters, also called rope_scaling, and
/// dtype), and ignores keys that don't change what is computed in training (token ids, use_cache,
/// generation settings and the like). Throws Error with the file and the key: kNotFound without the
/// file, kDataLoss if it is unreadable, kFailedPrecondition for any other content: wrong type,
/// missing key, impossible size, unknown key, scaled rotary embeddings.
Config ReadConfig(const std::string& path);

/// The same from text; `where` names it in messages.
Config ParseConfig(std::string_view text, const std::string& where);

}  // namespace zerod::neox
