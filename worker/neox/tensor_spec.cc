#include "worker/neox/tensor_spec.h"

#include <utility>

#include "worker/neox/keyed_random.h"

namespace zerod::neox {
namespace {

TensorSpec Weight(const Config& config, std::string name, int64_t rows, int64_t columns) {
  return {std::move(name), {rows, columns}, 0, config.initializer_range};
}

void AddLinear(std::vector<TensorSpec>& specs, TensorSpec weight, const std::string& module,
               bool bias) {
  const int64_t rows = weight.shape[0];
  specs.push_back(std::move(weight));
  if (bias) specs.push_back({module + ".bias", {rows}, 0, 0});
}

void AddNorm(std::vector<TensorSpec>& specs, const Config& config, const std::string& module) {
  specs.push_back({module + ".weight", {config.hidden_size}, 1, 0});
  specs.push_back({module + ".bias", {config.hidden_size}, 0, 0});
}

}  // namespace

int64_t TensorSpec::numel() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

std::vector<TensorSpec> EmbeddingTensors(const Config& config) {
  return {Weight(config, "gpt_neox.embed_in.weight", config.vocab_size, config.hidden_size)};
}

std::vector<TensorSpec> BlockTensors(const Config& config, int64_t block) {
  const std::string prefix = "gpt_neox.layers." + std::to_string(block) + ".";
  const int64_t hidden = config.hidden_size;
  std::vector<TensorSpec> specs;
  auto add_linear = [&](const std::string& name, int64_t rows, int64_t columns, bool bias) {
    const std::string module = prefix + name;
    AddLinear(specs, Weight(config, module + ".weight", rows, columns), module, bias);
  };
  AddNorm(specs, config, prefix + "input_layernorm");
  AddNorm(specs, config, prefix + "post_attention_layernorm");
  add_linear("attention.query_key_value", 3 * hidden, hidden, config.attention_bias);
  add_linear("attention.dense", hidden, hidden, config.attention_bias);
  add_linear("mlp.dense_h_to_4h", config.intermediate_size, hidden, true);
  add_linear("mlp.dense_4h_to_h", hidden, config.intermediate_size, true);
  return specs;
}

std::vector<TensorSpec> HeadTensors(const Config& config) {
  std::vector<TensorSpec> specs;
  AddNorm(specs, config, "gpt_neox.final_layer_norm");
  if (!config.tie_word_embeddings) {
    specs.push_back(Weight(config, "embed_out.weight", config.vocab_size, config.hidden_size));
  }
  return specs;
}

std::vector<TensorSpec> ModelTensors(const Config& config) {
  std::vector<TensorSpec> specs = EmbeddingTensors(config);
  auto append = [&](const std::vector<TensorSpec>& more) {
    specs.insert(specs.end(), more.begin(), more.end());
  };
  for (int64_t block = 0; block < config.num_hidden_layers; ++block) {
    append(BlockTensors(config, block));
  }
  append(HeadTensors(config));
  return specs;
}

void FillInitialValues(const TensorSpec& spec, uint64_t seed, uint64_t first_index,
                       std::span<float> out) {
  KeyedRandom(seed, spec.name).FillNormal(first_index, spec.mean, spec.deviation, out);
}

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

}  // namespace zerod::neox
