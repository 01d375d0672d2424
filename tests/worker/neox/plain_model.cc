#include "tests/worker/neox/plain_model.h"

namespace zerod::neox {

PlainModel::PlainModel(const Config& config, DType dtype) {
  const LayerContext context = MakeLayerContext(config, dtype, forward_);
  auto embedding = std::make_shared<Embedding>(config, context);
  layers_.push_back(embedding);
  for (int64_t block = 0; block < config.num_hidden_layers; ++block) {
    layers_.push_back(std::make_shared<Block>(config, block, context));
  }
  layers_.push_back(std::make_shared<Head>(
      config, config.tie_word_embeddings ? embedding->weight() : at::Tensor(), context));
}

void PlainModel::Initialize(uint64_t seed) {
  for (const auto& layer : layers_) layer->Initialize(seed);
}

void PlainModel::Load(const Checkpoint& checkpoint) {
  for (const auto& layer : layers_) layer->Load(checkpoint);
}

at::Tensor PlainModel::Forward(const at::Tensor& tokens) {
  at::Tensor value = tokens;
  for (const auto& layer : layers_) value = layer->forward(value);
  return value;
}

std::map<std::string, at::Tensor> PlainModel::NamedParameters() const {
  std::map<std::string, at::Tensor> named;
  for (const auto& layer : layers_) {
    for (const TensorSpec& spec : layer->specs()) named[spec.name] = layer->parameter(spec.name);
  }
  return named;
}

std::vector<at::Tensor> PlainModel::Parameters() const {
  std::vector<at::Tensor> parameters;
  for (const auto& layer : layers_) {
    for (const at::Tensor& parameter : layer->parameters()) parameters.push_back(parameter);
  }
  return parameters;
}

}  // namespace zerod::neox
