#include "tests/system/values_neox.h"

#include <memory>
#include <string>

#include "proto/contract/error.h"

namespace zerod {
namespace {

LayerModule Wrap(const std::shared_ptr<neox::Layer>& layer,
                 const std::function<void(neox::Layer&)>& fill) {
  fill(*layer);
  LayerModule module = MakeLayerModule(layer);
  for (const neox::TensorSpec& spec : layer->specs()) module.tensor_names.push_back(spec.name);
  return module;
}

}  // namespace

void AddNeox(ShardedSequential& model, const neox::Config& config,
             const std::function<void(neox::Layer&)>& fill,
             std::shared_ptr<const neox::ForwardContext> forward) {
  const neox::LayerContext context =
      neox::MakeLayerContext(config, DType::kFloat32, std::move(forward));
  std::shared_ptr<neox::Embedding> embedding;
  model.AddLayer("embed_in", [&] {
    embedding = std::make_shared<neox::Embedding>(config, context);
    return Wrap(embedding, fill);
  });
  for (int64_t block = 0; block < config.num_hidden_layers; ++block) {
    model.AddLayer(Concat("layers.", block), [&] {
      return Wrap(std::make_shared<neox::Block>(config, block, context), fill);
    });
  }
  LayerOptions head;
  if (config.tie_word_embeddings) head.uses = {"embed_in"};
  model.AddLayer(
      "head",
      [&] {
        const at::Tensor tied = config.tie_word_embeddings ? embedding->weight() : at::Tensor();
        return Wrap(std::make_shared<neox::Head>(config, tied, context), fill);
      },
      head);
}

}  // namespace zerod
