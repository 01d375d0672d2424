#include "worker/neox/layers.h"

#include <utility>

#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>
#include <torch/csrc/autograd/grad_mode.h>

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

std::span<float> Elements(const at::Tensor& tensor) {
  ZEROD_CHECK(tensor.is_contiguous() && tensor.scalar_type() == at::kFloat, "not plain float32");
  return {tensor.mutable_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
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

Layer::Layer(const std::string& prefix, std::vector<TensorSpec> specs)
    : prefix_(prefix), specs_(std::move(specs)) {
  for (const TensorSpec& spec : specs_) {
    parameters_.push_back(at::empty(spec.shape, at::kFloat).requires_grad_());
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
    FillInitialValues(specs_[i], seed, 0, Elements(parameters_[i]));
  }
}

void Layer::Load(const Checkpoint& checkpoint) {
  for (size_t i = 0; i < specs_.size(); ++i) {
    checkpoint.Read(specs_[i].name, Elements(parameters_[i]));
  }
}

Embedding::Embedding(const Config& config)
    : Layer("gpt_neox.", EmbeddingTensors(config)), weight_(Find("embed_in.weight")) {}

at::Tensor Embedding::forward(const at::Tensor& tokens) {
  CheckTokens(tokens, weight_.size(0));
  return at::embedding(weight_, tokens);
}

Block::Block(const Config& config, int64_t index, std::shared_ptr<RotaryTable> rotary)
    : Layer("gpt_neox.layers." + std::to_string(index) + ".", BlockTensors(config, index)),
      config_(config),
      rotary_(rotary != nullptr ? std::move(rotary) : std::make_shared<RotaryTable>(config)),
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

at::Tensor Block::Attention(const at::Tensor& normal, int64_t batch) {
  const int64_t positions = normal.size(0) / batch;
  const at::Tensor fused = at::linear(normal, query_key_value_.weight, query_key_value_.bias);
  const Heads heads = SplitAndRotate(fused.view({batch, positions, 3 * config_.hidden_size}),
                                     config_.num_attention_heads, rotary_->First(positions));
  const at::Tensor mixed = at::scaled_dot_product_attention(
      heads.query, heads.key, heads.value, /*attn_mask=*/{}, /*dropout_p=*/0, /*is_causal=*/true);
  return at::linear(mixed.transpose(1, 2).reshape(normal.sizes()), dense_.weight, dense_.bias);
}

at::Tensor Block::Mlp(const at::Tensor& normal) const {
  const at::Tensor wide = at::linear(normal, up_.weight, up_.bias);
  return at::linear(Activate(wide, config_.hidden_act), down_.weight, down_.bias);
}

at::Tensor Block::forward(const at::Tensor& hidden) {
  if (hidden.size(1) > config_.max_position_embeddings) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("a sequence of ", hidden.size(1), " tokens is longer than the model's ",
                       config_.max_position_embeddings, " (max_position_embeddings)"));
  }
  // Rows instead of [B, T, C]: for a matrix, at::linear is one call without views around it, so
  // that its result may be added to in place. Nothing saves these results for the backward.
  const at::Tensor rows = hidden.reshape({-1, config_.hidden_size});
  at::Tensor sum = Attention(Norm(rows, input_norm_), hidden.size(0));
  if (config_.use_parallel_residual) {
    sum = Mlp(Norm(rows, attention_norm_)).add_(sum).add_(rows);
  } else {
    sum.add_(rows);
    sum = Mlp(Norm(sum, attention_norm_)).add_(sum);
  }
  return sum.view(hidden.sizes());
}

Head::Head(const Config& config, at::Tensor tied_weight)
    : Layer("gpt_neox.", HeadTensors(config)),
      epsilon_(config.layer_norm_eps),
      norm_weight_(Find("final_layer_norm.weight")),
      norm_bias_(Find("final_layer_norm.bias")),
      projection_(config.tie_word_embeddings ? std::move(tied_weight) : Find("embed_out.weight")) {
  ZEROD_CHECK(projection_.defined(), "tied embeddings need the embedding's weight");
}

at::Tensor Head::forward(const at::Tensor& hidden) {
  const at::Tensor rows = hidden.reshape({-1, norm_weight_.size(0)});
  const at::Tensor normal =
      at::layer_norm(rows, norm_weight_.sizes(), norm_weight_, norm_bias_, epsilon_);
  const at::Tensor logits = at::linear(normal, projection_);
  return logits.view({hidden.size(0), hidden.size(1), logits.size(1)});
}

}  // namespace zerod::neox
