// ShardedModel: registration of layers and access to whole tensors.

#include <algorithm>
#include <cstring>

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include "proto/contract/error.h"
#include "worker/sharded/sharded_model.h"

namespace zerod {
namespace {

DType DTypeOf(const at::Tensor& tensor, const std::string& name) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return DType::kFloat32;
    case at::kBFloat16:
      return DType::kBFloat16;
    default:
      throw Error(ErrorCode::kInvalidArgument,
                  Concat("tensor '", name, "' has element type ", tensor.scalar_type(),
                         "; parameters must be float32 or bfloat16"));
  }
}

at::ScalarType ScalarTypeOf(DType dtype) {
  ZEROD_CHECK(dtype == DType::kFloat32 || dtype == DType::kBFloat16, DTypeName(dtype));
  return dtype == DType::kFloat32 ? at::kFloat : at::kBFloat16;
}

/// Of a tensor in the staging buffer of a read.
at::ScalarType StagedType(const TensorSpec& tensor, Content content) {
  return content == Content::kParameter ? ScalarTypeOf(tensor.dtype) : at::kFloat;
}

/// Whether frozen tensors have it too.
bool IsOfEveryTensor(Content content) {
  return content == Content::kParameter || content == Content::kMaster;
}

}  // namespace

size_t ShardedModel::FindLayer(const std::string& name) const {
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].plan.spec.name == name) return i;
  }
  throw Error(ErrorCode::kInvalidArgument, Concat("there is no layer '", name, "' among the ",
                                                  layers_.size(), " registered so far"));
}

void ShardedModel::FindUses(const std::vector<std::string>& names, Layer& layer) const {
  for (const std::string& name : names) layer.uses.push_back(FindLayer(name));
  for (const at::Tensor& parameter : layer.module.module->parameters()) {
    for (size_t owner = 0; owner < layers_.size(); ++owner) {
      const bool owned = std::ranges::any_of(
          layers_[owner].parameters, [&](const at::Tensor& own) { return own.is_same(parameter); });
      if (owned) layer.uses.push_back(owner);
    }
  }
  std::ranges::sort(layer.uses);
  layer.uses.erase(std::unique(layer.uses.begin(), layer.uses.end()), layer.uses.end());
}

LayerSpec ShardedModel::Describe(const std::string& name, LayerModule& module, Layer& layer) {
  LayerSpec spec;
  spec.name = name;
  const auto items = module.module->named_parameters().pairs();
  if (!module.tensor_names.empty() && module.tensor_names.size() != items.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("layer '", name, "' has ", items.size(), " parameters, but ",
                       module.tensor_names.size(), " names were given"));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    const at::Tensor& parameter = items[i].second;
    const bool tied = std::ranges::any_of(layers_, [&](const Layer& other) {
      return std::ranges::any_of(other.parameters,
                                 [&](const at::Tensor& own) { return own.is_same(parameter); });
    });
    if (tied) continue;
    TensorSpec tensor;
    tensor.name =
        module.tensor_names.empty() ? Concat(name, ".", items[i].first) : module.tensor_names[i];
    tensor.shape = parameter.sizes().vec();
    tensor.dtype = DTypeOf(parameter, tensor.name);
    const ParameterSettings settings = SettingsOf(options_.groups, tensor.name);
    tensor.trainable = settings.train && parameter.requires_grad();
    tensor.lr_scale = settings.lr_scale;
    tensor.decay = settings.decay;
    spec.tensors.push_back(std::move(tensor));
    layer.parameters.push_back(parameter);
  }
  return spec;
}

size_t ShardedModel::AddLayer(const std::string& name, const std::function<LayerModule()>& factory,
                              const LayerOptions& options) {
  if (sealed_) {
    throw Error(ErrorCode::kFailedPrecondition,
                Concat("layer '", name, "' comes after the first call; add all layers first"));
  }
  layers_.emplace_back();
  Layer& layer = layers_.back();
  layer.module = factory();
  layer.checkpoint = options.checkpoint;
  layer.plan.spec.name = name;
  FindUses(options.uses, layer);
  const LayerSpec spec = Describe(name, layer.module, layer);
  if (!spec.tensors.empty()) {
    layer.session_index = 0;
    for (const Layer& other : layers_)
      layer.session_index += &other != &layer && other.session_index >= 0;
    layer.plan = session_.Register(spec);
    if (session_.info().created) {
      if (options.import_from.empty()) {
        Upload(layers_.size() - 1, options);
      } else {
        Import(layers_.size() - 1, options.import_from);
      }
    }
    BindParameters(layer);
  }
  tracker_.AddLayer(layer.parameters);
  return layers_.size() - 1;
}

void ShardedModel::Upload(size_t index, const LayerOptions& options) {
  if (!options.initialized && !options.load) return;
  Layer& layer = layers_[index];
  const bool provides = session_.info().mesh.DpIndex(session_.info().rank) == 0;
  std::shared_ptr<Mapping> stage;
  if (provides) {
    if (options.load) options.load();
    stage =
        std::make_shared<Mapping>(session_.MapStage(layer.session_index, layer.plan.stage_bytes));
    for (size_t i = 0; i < layer.parameters.size(); ++i) {
      StageView(layer, i, stage, at::kFloat).copy_(layer.parameters[i].detach());
    }
  }
  session_.Wait(Queue::kData, Submit(OperationKind::kWrite, index),
                Concat("upload of layer '", layer_name(index), "'"));
}

void ShardedModel::Import(size_t index, const std::vector<FileRange>& ranges) {
  const Layer& layer = layers_[index];
  if (ranges.size() != layer.plan.tensors.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("layer '", layer_name(index), "' has ", layer.plan.tensors.size(),
                       " tensors of its own, but import_from names ", ranges.size()));
  }
  Operation operation;
  operation.kind = OperationKind::kImport;
  operation.layer = layer.session_index;
  operation.import_from = ranges;
  session_.Wait(Queue::kData, session_.Submit(std::move(operation)),
                Concat("import of layer '", layer_name(index), "'"));
}

void ShardedModel::BindParameters(Layer& layer) {
  const c10::NoGradGuard no_grad;
  const LayerPlan& plan = layer.plan;
  for (size_t chunk = 0; chunk < plan.chunks.size(); ++chunk) {
    layer.regions.push_back(session_.MapRegion(layer.session_index, static_cast<int>(chunk),
                                               plan.chunks[chunk].RegionBytes()));
    layer.storages.push_back(std::make_unique<ParameterStorage>(
        ScalarTypeOf(plan.chunks[chunk].dtype), plan.chunks[chunk].padded_numel, plan.spec.name));
  }
  for (size_t i = 0; i < layer.parameters.size(); ++i) {
    const TensorPlan& tensor = plan.tensors[i];
    const TensorSpec& spec = plan.spec.tensors[i];
    // The module keeps its tensor objects; only their storage changes. No graph has seen them yet.
    const at::Tensor view =
        layer.storages[tensor.chunk]->MakeParameter(tensor.offset_numel, spec.shape, false);
    layer.parameters[i].set_data(view);
    layer.parameters[i].set_requires_grad(spec.trainable);
  }
}

void ShardedModel::CheckWindow() const {
  const int64_t window_bytes = session_.info().window_bytes;
  if (window_bytes == 0) return;
  // The layer that computes, with those it reads too, and the one that comes.
  int64_t largest_bytes = 0;
  int64_t next_bytes = 0;
  for (const Layer& layer : layers_) {
    int64_t bytes = layer.plan.gathered_bytes;
    for (size_t use : layer.uses) bytes += layers_[use].plan.gathered_bytes;
    if (bytes > largest_bytes) std::swap(bytes, largest_bytes);
    next_bytes = std::max(next_bytes, bytes);
  }
  const int64_t needed = largest_bytes + (options_.prefetch_depth > 0 ? next_bytes : 0);
  if (window_bytes >= needed) return;
  throw Error(ErrorCode::kResourceExhausted,
              Concat("the gather window of ", window_bytes, " bytes is too small: one layer and ",
                     "its prefetch need ", needed, " bytes; set window_bytes to at least that"));
}

std::vector<std::string> ShardedModel::tensor_names() const {
  std::vector<std::string> names;
  for (const Layer& layer : layers_) {
    for (const TensorSpec& tensor : layer.plan.spec.tensors) names.push_back(tensor.name);
  }
  return names;
}

std::pair<size_t, size_t> ShardedModel::FindTensor(const std::string& name) const {
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    const auto& tensors = layers_[layer].plan.spec.tensors;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].name == name) return {layer, i};
    }
  }
  throw Error(ErrorCode::kInvalidArgument, Concat("the model has no tensor '", name, "'"));
}

at::Tensor ShardedModel::StageView(const Layer& layer, size_t tensor,
                                   const std::shared_ptr<Mapping>& stage,
                                   at::ScalarType dtype) const {
  const TensorPlan& plan = layer.plan.tensors[tensor];
  const ChunkPlan& chunk = layer.plan.chunks[plan.chunk];
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(dtype));
  return at::from_blob(
      stage->data() + chunk.stage_offset_bytes + plan.offset_numel * element_bytes,
      layer.plan.spec.tensors[tensor].shape, [stage](void* /*data*/) {}, dtype);
}

std::shared_ptr<Mapping> ShardedModel::ReadStage(size_t index, Content content, bool wants_data) {
  const Layer& layer = layers_[index];
  std::shared_ptr<Mapping> stage;
  if (wants_data) {
    stage =
        std::make_shared<Mapping>(session_.MapStage(layer.session_index, layer.plan.stage_bytes));
  }
  Operation operation;
  operation.kind = OperationKind::kRead;
  operation.layer = layer.session_index;
  operation.content = content;
  operation.wants_data = wants_data;
  session_.Wait(Queue::kData, session_.Submit(std::move(operation)),
                Concat("read of layer '", layer_name(index), "'"));
  return stage;
}

std::vector<at::Tensor> ShardedModel::ReadLayer(size_t index, Content content, bool wants_data) {
  Seal();
  const Layer& layer = layers_[index];
  std::vector<at::Tensor> tensors(layer.plan.tensors.size());
  if (layer.session_index < 0) return tensors;
  const std::shared_ptr<Mapping> stage = ReadStage(index, content, wants_data);
  for (size_t i = 0; wants_data && i < tensors.size(); ++i) {
    const TensorSpec& spec = layer.plan.spec.tensors[i];
    if (!spec.trainable && !IsOfEveryTensor(content)) continue;
    tensors[i] = StageView(layer, i, stage, StagedType(spec, content));
  }
  return tensors;
}

at::Tensor ShardedModel::ReadTensor(const std::string& name, Content content, bool wants_data) {
  Seal();
  const auto [index, tensor] = FindTensor(name);
  const TensorSpec& spec = layers_[index].plan.spec.tensors[tensor];
  if (!spec.trainable && !IsOfEveryTensor(content)) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("tensor '", name, "' is frozen: it has no gradient and no moments"));
  }
  const std::shared_ptr<Mapping> stage = ReadStage(index, content, wants_data);
  if (!wants_data) return {};
  return StageView(layers_[index], tensor, stage, StagedType(spec, content)).clone();
}

void ShardedModel::WriteTensor(const std::string& name, const at::Tensor& value) {
  Seal();
  const auto [index, tensor] = FindTensor(name);
  ReleaseUnused();
  DropKept();
  const bool provides = session_.info().mesh.DpIndex(session_.info().rank) == 0;
  const auto& shape = layers_[index].plan.spec.tensors[tensor].shape;
  if (provides && (!value.defined() || value.sizes() != at::IntArrayRef(shape))) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("tensor '", name, "' has shape ", at::IntArrayRef(shape),
                       ", the value to write ", value.defined() ? Concat(value.sizes()) : "none"));
  }
  const std::shared_ptr<Mapping> stage = ReadStage(index, Content::kMaster, provides);
  if (provides) StageView(layers_[index], tensor, stage, at::kFloat).copy_(value);
  session_.Wait(Queue::kData, Submit(OperationKind::kWrite, index),
                Concat("write of tensor '", name, "'"));
}

}  // namespace zerod
