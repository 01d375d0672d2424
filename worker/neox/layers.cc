#include "worker/neox/layers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>
#include <c10/core/GradMode.h>

#include "proto/contract/error.h"

namespace zerod::neox {
namespace {

/// Registers `parameter` under a dotted path, making the modules on the way.
void RegisterAt(torch::nn::Module& root, const std::string& path, const at::Tensor& parameter) {
  const size_t dot = path.find('.');
  if (dot == std::string::npos) {
    root.register_parameter(path, parameter);
    return;
  }
  const std::string name = path.substr(0, dot);
  for (const auto& child : root.named_children()) {
    if (child.key() == name) return RegisterAt(*child.value(), path.substr(dot + 1), parameter);
  }
  const auto made = root.register_module(name, std::make_shared<torch::nn::Module>(name));
  RegisterAt(*made, path.substr(dot + 1), parameter);
}

/// Values are made as float32 in parts of this size, so that no second copy of a tensor is held.
constexpr int64_t kPartNumel = 1 << 18;

at::ScalarType ScalarTypeOf(DType dtype) {
  ZEROD_CHECK(dtype == DType::kFloat32 || dtype == DType::kBFloat16, "layers of ",
              DTypeName(dtype));
  return dtype == DType::kFloat32 ? at::kFloat : at::kBFloat16;
}

/// Fills `tensor` by calls of make(first index, part).
template <typename Make>
void FillInParts(const at::Tensor& tensor, const Make& make) {
  ZEROD_CHECK(tensor.is_contiguous(), "not plain");
  const c10::NoGradGuard no_grad;
  const at::Tensor flat = tensor.view({-1});
  std::vector<float> buffer(static_cast<size_t>(std::min(kPartNumel, flat.numel())));
  for (int64_t first = 0; first < flat.numel(); first += kPartNumel) {
    const int64_t count = std::min(kPartNumel, flat.numel() - first);
    const std::span<float> part(buffer.data(), static_cast<size_t>(count));
    make(static_cast<uint64_t>(first), part);
    flat.narrow(0, first, count).copy_(at::from_blob(part.data(), {count}, at::kFloat));
  }
}

std::string WithoutPrefix(const std::string& name, const std::string& prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

at::Tensor Activate(const at::Tensor& input, Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return at::gelu(input);
    case Activation::kGeluTanh:
      return at::gelu(input, "tanh");
    case Activation::kQuickGelu:
      return input.mul(at::sigmoid(input.mul(1.702)));
    case Activation::kRelu:
      return at::relu(input);
    case Activation::kSilu:
      return at::silu(input);
    case Activation::kTanh:
      return at::tanh(input);
  }
  ZEROD_CHECK(false, "activation ", static_cast<int>(activation));
}

at::Tensor Drop(const at::Tensor& input, double probability, bool training) {
  return training && probability > 0 ? at::dropout(input, probability, true) : input;
}

void CheckTokens(const at::Tensor& tokens, int64_t vocabulary) {
  ZEROD_CHECK(tokens.scalar_type() == at::kLong && tokens.dim() == 2,
              "token ids must be int64 [batch, sequence]");
  const at::Tensor plain = tokens.contiguous();
  const int64_t* id = plain.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < plain.numel(); ++i) {
    if (id[i] >= 0 && id[i] < vocabulary) [[likely]]
      continue;
    throw Error(
        ErrorCode::kDataLoss,
        Concat("token id ", id[i], " in sample ", i / plain.size(1), ", position ",
               i % plain.size(1), " of the batch is outside the vocabulary of ", vocabulary));
  }
}

}  // namespace

LayerContext MakeLayerContext(const Config& config, DType dtype,
                              std::shared_ptr<const ForwardContext> forward) {
  return {dtype, std::make_shared<RotaryTable>(config, dtype), std::move(forward)};
}

Layer::Layer(const std::string& prefix, std::vector<TensorSpec> specs, const LayerContext& context)
    : prefix_(prefix), specs_(std::move(specs)), forward_(context.forward) {
  for (const TensorSpec& spec : specs_) {
    parameters_.push_back(at::empty(spec.shape, ScalarTypeOf(context.dtype)).requires_grad_());
    RegisterAt(*this, WithoutPrefix(spec.name, prefix_), parameters_.back());
  }
}

at::Tensor Layer::Find(const std::string& local_name) const {
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (WithoutPrefix(specs_[i].name, prefix_) == local_name) return parameters_[i];
  }
  return {};
}

const at::Tensor& Layer::parameter(const std::string& name) const {
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].name == name || WithoutPrefix(specs_[i].name, prefix_) == name) {
      return parameters_[i];
    }
  }
  ZEROD_CHECK(false, "no parameter ", name, " in ", prefix_);
}

void Layer::Initialize(uint64_t seed) {
  for (size_t i = 0; i < specs_.size(); ++i) {
    FillInParts(parameters_[i], [&](uint64_t first, std::span<float> part) {
      FillInitialValues(specs_[i], seed, first, part);
    });
  }
}

void Layer::Load(const Checkpoint& checkpoint) {
  for (size_t i = 0; i < specs_.size(); ++i) {
    FillInParts(parameters_[i], [&](uint64_t first, std::span<float> part) {
      checkpoint.Read(specs_[i].name, first, part);
    });
  }
}

Embedding::Embedding(const Config& config, const LayerContext& context)
    : Layer("gpt_neox.", EmbeddingTensors(config), context),
      dropout_(config.hidden_dropout),
      weight_(Find("embed_in.weight")) {}

at::Tensor Embedding::forward(const at::Tensor& tokens) {
  CheckTokens(tokens, weight_.size(0));
  return Drop(at::embedding(weight_, tokens), dropout_, training());
}

Block::Block(const Config& config, int64_t index, const LayerContext& context)
    : Layer("gpt_neox.layers." + std::to_string(index) + ".", BlockTensors(config, index), context),
      config_(config),
      index_(index),
      rotary_(context.rotary != nullptr ? context.rotary
                                        : std::make_shared<RotaryTable>(config, context.dtype)),
      input_norm_(FindLinear("input_layernorm")),
      attention_norm_(FindLinear("post_attention_layernorm")),
      query_key_value_(FindLinear("attention.query_key_value")),
      dense_(FindLinear("attention.dense")),
      up_(FindLinear("mlp.dense_h_to_4h")),
      down_(FindLinear("mlp.dense_4h_to_h")) {}

Block::Linear Block::FindLinear(const std::string& module) const {
  return {Find(module + ".weight"), Find(module + ".bias")};
}

at::Tensor Block::Norm(const at::Tensor& rows, const Linear& norm) const {
  return at::layer_norm(rows, {config_.hidden_size}, norm.weight, norm.bias,
                        config_.layer_norm_eps);
}

at::Tensor Block::Mix(const Heads& heads) const {
  at::Tensor key = heads.key;
  at::Tensor value = heads.value;
  std::optional<at::Tensor> mask;
  const int64_t positions = heads.query.size(2);
  if (cache() != nullptr) {
    const int64_t past = cache()->length();
    const KeyValueCache::Past kept = cache()->Append(index_, key, value);
    key = kept.key;
    value = kept.value;
    if (past > 0 && positions > 1) {
      // Of query i the positions up to past + i are seen.
      mask = at::arange(past + positions).le(at::arange(past, past + positions).unsqueeze(1));
    } else if (past > 0) {
      return at::scaled_dot_product_attention(heads.query, key, value);
    }
  }
  const double dropout = training() ? config_.attention_dropout : 0;
  return at::scaled_dot_product_attention(heads.query, key, value, mask, dropout,
                                          /*is_causal=*/!mask);
}

at::Tensor Block::Attention(const at::Tensor& normal, int64_t batch) {
  const int64_t positions = normal.size(0) / batch;
  const int64_t past = cache() != nullptr ? cache()->length() : 0;
  const at::Tensor fused = at::linear(normal, query_key_value_.weight, query_key_value_.bias);
  const Heads heads = SplitAndRotate(fused.view({batch, positions, 3 * config_.hidden_size}),
                                     config_.num_attention_heads, rotary_->Range(past, positions));
  return at::linear(Mix(heads).transpose(1, 2).reshape(normal.sizes()), dense_.weight, dense_.bias);
}

at::Tensor Block::Mlp(const at::Tensor& normal) const {
  const at::Tensor wide = at::linear(normal, up_.weight, up_.bias);
  return at::linear(Activate(wide, config_.hidden_act), down_.weight, down_.bias);
}

at::Tensor Block::forward(const at::Tensor& hidden) {
  const int64_t positions = hidden.size(1) + (cache() != nullptr ? cache()->length() : 0);
  if (positions > config_.max_position_embeddings) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("a sequence of ", positions, " tokens is longer than the model's ",
                       config_.max_position_embeddings, " (max_position_embeddings)"));
  }
  // Rows instead of [B, T, C]: for a matrix, at::linear is one call without views around it, so
  // that its result may be added to in place. Nothing saves these results for the backward.
  const at::Tensor rows = hidden.reshape({-1, config_.hidden_size});
  const double dropout = config_.hidden_dropout;
  at::Tensor sum = Drop(Attention(Norm(rows, input_norm_), hidden.size(0)), dropout, training());
  if (config_.use_parallel_residual) {
    sum = Drop(Mlp(Norm(rows, attention_norm_)), dropout, training()).add_(sum).add_(rows);
  } else {
    sum.add_(rows);
    sum = Drop(Mlp(Norm(sum, attention_norm_)), dropout, training()).add_(sum);
  }
  return sum.view(hidden.sizes());
}

Head::Head(const Config& config, at::Tensor tied_weight, const LayerContext& context)
    : Layer("gpt_neox.", HeadTensors(config), context),
      epsilon_(config.layer_norm_eps),
      norm_weight_(Find("final_layer_norm.weight")),
      norm_bias_(Find("final_layer_norm.bias")),
      projection_(config.tie_word_embeddings ? std::move(tied_weight) : Find("embed_out.weight")) {
  ZEROD_CHECK(projection_.defined(), "tied embeddings need the embedding's weight");
}

at::Tensor Head::forward(const at::Tensor& hidden) {
  const at::Tensor wanted = cache() != nullptr ? hidden.narrow(1, hidden.size(1) - 1, 1) : hidden;
  const at::Tensor rows = wanted.reshape({-1, norm_weight_.size(0)});
  const at::Tensor normal =
      at::layer_norm(rows, norm_weight_.sizes(), norm_weight_, norm_bias_, epsilon_);
  // The loss is computed in float32, as in the published implementation.
  const at::Tensor logits = at::linear(normal, projection_).to(at::kFloat);
  return logits.view({wanted.size(0), wanted.size(1), logits.size(1)});
}

}  // namespace zerod::neox
