#include "worker/train/model_builder.h"

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "proto/contract/error.h"
#include "worker/neox/layers.h"
#include "worker/neox/tensor_spec.h"

namespace zerod::train {
namespace {

constexpr const char* kEmbedding = "embed_in";

class Builder {
 public:
  Builder(const neox::Checkpoint* weights, const BuildOptions& options, ShardedSequential& model)
      : weights_(weights), options_(options), model_(model) {}

  /// `make` returns a neox::Layer with the tensors `specs`. It is called by the model, so that no
  /// two layers' values are in memory at the same time.
  template <typename Make>
  auto Add(const std::string& name, const std::vector<neox::TensorSpec>& specs, Make make,
           LayerOptions layer_options = {}) {
    auto layer = std::make_shared<std::invoke_result_t<Make>>();
    layer_options.initialized = false;
    if (weights_ != nullptr) {
      for (const auto& spec : specs) {
        layer_options.import_from.push_back(weights_->Locate(spec.name));
      }
    } else {
      layer_options.load = [this, layer] { (*layer)->Initialize(options_.seed); };
    }
    model_.AddLayer(
        name,
        [layer, make = std::move(make)] {
          *layer = make();
          LayerModule module = MakeLayerModule(*layer);
          for (const auto& spec : (*layer)->specs()) module.tensor_names.push_back(spec.name);
          return module;
        },
        layer_options);
    return *layer;
  }

 private:
  const neox::Checkpoint* weights_;
  const BuildOptions& options_;
  ShardedSequential& model_;
};

}  // namespace

void BuildModel(const neox::Config& config, const neox::Checkpoint* weights,
                const BuildOptions& options, ShardedSequential& model) {
  Builder builder(weights, options, model);
  const neox::LayerContext context = neox::MakeLayerContext(config, options.dtype, options.forward);
  const auto embedding = builder.Add(kEmbedding, neox::EmbeddingTensors(config), [&] {
    return std::make_shared<neox::Embedding>(config, context);
  });
  LayerOptions block_options;
  block_options.checkpoint = options.checkpoint;
  for (int64_t block = 0; block < config.num_hidden_layers; ++block) {
    builder.Add(
        Concat("layers.", block), neox::BlockTensors(config, block),
        [&] { return std::make_shared<neox::Block>(config, block, context); }, block_options);
  }
  const bool tied = config.tie_word_embeddings;
  LayerOptions head;
  if (tied) head.uses = {kEmbedding};
  builder.Add(
      "head", neox::HeadTensors(config),
      [&] {
        return std::make_shared<neox::Head>(config, tied ? embedding->weight() : at::Tensor(),
                                            context);
      },
      head);
}

}  // namespace zerod::train
