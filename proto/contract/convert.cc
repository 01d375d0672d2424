#include "proto/contract/convert.h"

#include <cmath>

namespace zerod {
namespace {

template <typename... Args>
void Require(bool condition, const Args&... message) {
  if (!condition) throw Error(ErrorCode::kInvalidArgument, Concat(message...));
}

template <typename Enum>
Enum EnumOf(uint32_t number, Enum last, const char* what) {
  Require(number >= 1 && number <= static_cast<uint32_t>(last), "unknown ", what, " ", number);
  return static_cast<Enum>(number);
}

DType DTypeOf(uint32_t number) { return EnumOf(number, DType::kFloat16, "element type"); }

void RequireName(const std::string& name, const char* what) {
  Require(!name.empty() && name.size() <= kNameBytesMax, "the name of a ", what, " has ",
          name.size(), " bytes; 1 to ", kNameBytesMax, " are possible");
}

bool AtLeastZero(double value) { return std::isfinite(value) && value >= 0; }

TensorSpec TensorFrom(const v1::TensorSpec& message, int64_t& layer_numel) {
  RequireName(message.name(), "tensor");
  Require(message.shape_size() <= kDimensionsMax, "tensor ", message.name(), " has ",
          message.shape_size(), " dimensions; at most ", kDimensionsMax, " are possible");
  int64_t numel = 1;
  for (const int64_t size : message.shape()) {
    Require(size > 0, "tensor ", message.name(), " has a dimension of size ", size);
    Require(size <= kLayerNumelMax / numel, "tensor ", message.name(), " is too large");
    numel *= size;
  }
  layer_numel += numel;
  Require(layer_numel <= kLayerNumelMax, "tensor ", message.name(), " makes its layer too large");
  Require(AtLeastZero(message.lr_scale()), "tensor ", message.name(),
          " has a learning-rate scale of ", message.lr_scale());
  return {.name = message.name(),
          .shape = {message.shape().begin(), message.shape().end()},
          .dtype = DTypeOf(message.dtype()),
          .trainable = message.trainable(),
          .lr_scale = message.lr_scale(),
          .decay = message.decay()};
}

void StepToMessage(const StepArguments& step, v1::StepArguments& message) {
  message.set_optimizer(static_cast<uint32_t>(step.optimizer));
  message.set_learning_rate(step.learning_rate);
  message.set_beta1(step.beta1);
  message.set_beta2(step.beta2);
  message.set_eps(step.eps);
  message.set_weight_decay(step.weight_decay);
  message.set_max_grad_norm(step.max_grad_norm);
  message.set_gradient_divisor(step.gradient_divisor);
}

StepArguments StepFrom(const v1::StepArguments& message) {
  const StepArguments step{
      .optimizer = EnumOf(message.optimizer(), OptimizerKind::kSgd, "optimizer"),
      .learning_rate = message.learning_rate(),
      .beta1 = message.beta1(),
      .beta2 = message.beta2(),
      .eps = message.eps(),
      .weight_decay = message.weight_decay(),
      .max_grad_norm = message.max_grad_norm(),
      .gradient_divisor = message.gradient_divisor()};
  Require(AtLeastZero(step.learning_rate), "learning rate ", step.learning_rate);
  Require(AtLeastZero(step.beta1) && step.beta1 < 1, "beta1 ", step.beta1, " is outside [0, 1)");
  Require(AtLeastZero(step.beta2) && step.beta2 < 1, "beta2 ", step.beta2, " is outside [0, 1)");
  Require(AtLeastZero(step.eps), "eps ", step.eps);
  Require(AtLeastZero(step.weight_decay), "weight decay ", step.weight_decay);
  Require(AtLeastZero(step.max_grad_norm), "gradient norm bound ", step.max_grad_norm);
  Require(AtLeastZero(step.gradient_divisor) && step.gradient_divisor > 0, "gradient divisor ",
          step.gradient_divisor);
  return step;
}

bool HasLayer(OperationKind kind) {
  return kind != OperationKind::kSeal && kind != OperationKind::kStep &&
         kind != OperationKind::kScalar && kind != OperationKind::kRegister;
}

FileRange RangeFrom(const v1::FileRange& message) {
  const std::string& path = message.path();
  Require(path.size() <= kFilePathBytesMax, "an import from a path of ", path.size(),
          " bytes; at most ", kFilePathBytesMax, " are possible");
  Require(path.find('\0') == std::string::npos, "an import from a path with a zero byte");
  Require(path.starts_with('/'), "an import from '", path, "', which is no absolute path");
  Require(message.offset_bytes() >= 0, "an import from byte ", message.offset_bytes(), " of ",
          path);
  return {path, message.offset_bytes(), DTypeOf(message.dtype())};
}

/// The fields that only some kinds have.
void ArgumentsFrom(const v1::Operation& message, Operation& operation) {
  switch (operation.kind) {
    case OperationKind::kRegister:
      Require(message.has_layer_spec(), "a registration without a layer");
      operation.layer_spec = FromMessage(message.layer_spec());
      break;
    case OperationKind::kReduce:
      Require(message.slot() >= 0, "a reduce of slot ", message.slot());
      operation.slot = message.slot();
      operation.has_gradient.assign(message.has_gradient().begin(), message.has_gradient().end());
      break;
    case OperationKind::kStep:
      operation.step = StepFrom(message.step());
      operation.private_state = message.private_state();
      operation.values.assign(message.values().begin(), message.values().end());
      break;
    case OperationKind::kScalar:
      operation.values.assign(message.values().begin(), message.values().end());
      break;
    case OperationKind::kWrite:
    case OperationKind::kRead:
      Require(message.source_rank() >= 0, "source rank ", message.source_rank());
      operation.content = EnumOf(message.content(), kContentMax, "content");
      operation.source_rank = message.source_rank();
      operation.wants_data = message.wants_data();
      break;
    case OperationKind::kImport:
      Require(message.import_from_size() <= kTensorsMax, "an import of ",
              message.import_from_size(), " tensors; at most ", kTensorsMax, " are possible");
      for (const v1::FileRange& range : message.import_from()) {
        operation.import_from.push_back(RangeFrom(range));
      }
      break;
    case OperationKind::kSeal:
    case OperationKind::kGather:
    case OperationKind::kRelease:
      break;
  }
}

ChunkPlan ChunkFrom(const v1::ChunkPlan& message, const LayerSpec& spec,
                    const v1::LayerPlan& plan) {
  const ChunkPlan chunk{.dtype = DTypeOf(message.dtype()),
                        .trainable = message.trainable(),
                        .padded_numel = message.padded_numel(),
                        .shard_numel = message.shard_numel(),
                        .slot_offset_bytes = message.slot_offset_bytes(),
                        .stage_offset_bytes = message.stage_offset_bytes()};
  Require(chunk.shard_numel > 0 && chunk.padded_numel > 0 &&
              chunk.padded_numel <= 2 * kLayerNumelMax &&
              chunk.padded_numel % chunk.shard_numel == 0,
          "a chunk of layer ", spec.name, " has ", chunk.padded_numel, " elements in shards of ",
          chunk.shard_numel);
  const int64_t slot_bytes = chunk.padded_numel * SizeOf(spec.reduce_dtype);
  const bool slot_fits =
      chunk.slot_offset_bytes >= 0 && chunk.slot_offset_bytes <= plan.slot_bytes() - slot_bytes;
  Require(chunk.trainable ? slot_fits : chunk.slot_offset_bytes == -1, "a chunk of layer ",
          spec.name, " lies at byte ", chunk.slot_offset_bytes, " of a slot of ", plan.slot_bytes(),
          " bytes");
  Require(chunk.stage_offset_bytes >= 0 &&
              chunk.stage_offset_bytes <= plan.stage_bytes() - chunk.RegionBytes(),
          "a chunk of layer ", spec.name, " lies at byte ", chunk.stage_offset_bytes,
          " of a staging buffer of ", plan.stage_bytes(), " bytes");
  return chunk;
}

TensorPlan PlaceFrom(const v1::TensorPlan& message, const TensorSpec& spec,
                     const std::vector<ChunkPlan>& chunks) {
  const TensorPlan place{message.chunk(), message.offset_numel(), message.numel()};
  int64_t numel = 1;
  for (const int64_t size : spec.shape) numel *= size;
  Require(place.chunk >= 0 && place.chunk < std::ssize(chunks), "tensor ", spec.name,
          " lies in chunk ", place.chunk, " of ", chunks.size());
  const ChunkPlan& chunk = chunks[static_cast<size_t>(place.chunk)];
  Require(place.numel == numel && place.offset_numel >= 0 &&
              place.offset_numel <= chunk.padded_numel - numel,
          "tensor ", spec.name, " of ", numel, " elements was planned as ", place.numel,
          " elements at ", place.offset_numel, " of ", chunk.padded_numel);
  Require(chunk.dtype == spec.dtype && chunk.trainable == spec.trainable, "tensor ", spec.name,
          " was planned into a chunk of another kind");
  return place;
}

}  // namespace

void ToMessage(const LayerSpec& spec, v1::LayerSpec& message) {
  message.set_name(spec.name);
  message.set_reduce_dtype(static_cast<uint32_t>(spec.reduce_dtype));
  message.set_master_dtype(static_cast<uint32_t>(spec.master_dtype));
  for (const TensorSpec& tensor : spec.tensors) {
    v1::TensorSpec& added = *message.add_tensors();
    added.set_name(tensor.name);
    added.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    added.set_dtype(static_cast<uint32_t>(tensor.dtype));
    added.set_trainable(tensor.trainable);
    added.set_lr_scale(tensor.lr_scale);
    added.set_decay(tensor.decay);
  }
}

LayerSpec FromMessage(const v1::LayerSpec& message) {
  RequireName(message.name(), "layer");
  Require(message.tensors_size() <= kTensorsMax, "layer ", message.name(), " has ",
          message.tensors_size(), " tensors; at most ", kTensorsMax, " are possible");
  LayerSpec spec{.name = message.name(),
                 .tensors = {},
                 .reduce_dtype = DTypeOf(message.reduce_dtype()),
                 .master_dtype = DTypeOf(message.master_dtype())};
  int64_t layer_numel = 0;
  for (const v1::TensorSpec& tensor : message.tensors()) {
    spec.tensors.push_back(TensorFrom(tensor, layer_numel));
  }
  return spec;
}

void ToMessage(const Operation& operation, v1::Operation& message) {
  message.set_ticket(operation.ticket);
  message.set_kind(static_cast<uint32_t>(operation.kind));
  message.set_layer(operation.layer);
  message.set_version(operation.version);
  switch (operation.kind) {
    case OperationKind::kRegister:
      ToMessage(operation.layer_spec, *message.mutable_layer_spec());
      break;
    case OperationKind::kReduce:
      message.set_slot(operation.slot);
      for (const bool has : operation.has_gradient) message.add_has_gradient(has);
      break;
    case OperationKind::kStep:
      StepToMessage(operation.step, *message.mutable_step());
      message.set_private_state(operation.private_state);
      message.mutable_values()->Add(operation.values.begin(), operation.values.end());
      break;
    case OperationKind::kScalar:
      message.mutable_values()->Add(operation.values.begin(), operation.values.end());
      break;
    case OperationKind::kWrite:
    case OperationKind::kRead:
      message.set_content(static_cast<uint32_t>(operation.content));
      message.set_source_rank(operation.source_rank);
      message.set_wants_data(operation.wants_data);
      break;
    case OperationKind::kImport:
      for (const FileRange& range : operation.import_from) {
        v1::FileRange& added = *message.add_import_from();
        added.set_path(range.path);
        added.set_offset_bytes(range.offset_bytes);
        added.set_dtype(static_cast<uint32_t>(range.dtype));
      }
      break;
    case OperationKind::kSeal:
    case OperationKind::kGather:
    case OperationKind::kRelease:
      break;
  }
}

Operation FromMessage(const v1::Operation& message) {
  Operation operation;
  operation.ticket = message.ticket();
  operation.kind = EnumOf(message.kind(), kOperationKindMax, "operation");
  operation.layer = message.layer();
  operation.version = message.version();
  const char* const name = OperationKindName(operation.kind);
  Require(operation.ticket > 0, "a ", name, " without a ticket");
  Require(operation.layer >= (HasLayer(operation.kind) ? 0 : -1), "a ", name, " of layer ",
          operation.layer);
  Require(message.has_gradient_size() <= kTensorsMax, "a ", name, " with ",
          message.has_gradient_size(), " gradient flags; at most ", kTensorsMax, " are possible");
  Require(message.values_size() <= kValuesMax, "a ", name, " with ", message.values_size(),
          " values; at most ", kValuesMax, " are possible");
  Require(std::ssize(message.private_state()) <= kPrivateStateBytesMax, "a ", name, " with ",
          message.private_state().size(), " bytes of private state; at most ",
          kPrivateStateBytesMax, " are possible");
  ArgumentsFrom(message, operation);
  return operation;
}

void ToMessage(const LayerPlan& plan, v1::LayerPlan& message) {
  for (const ChunkPlan& chunk : plan.chunks) {
    v1::ChunkPlan& added = *message.add_chunks();
    added.set_dtype(static_cast<uint32_t>(chunk.dtype));
    added.set_trainable(chunk.trainable);
    added.set_padded_numel(chunk.padded_numel);
    added.set_shard_numel(chunk.shard_numel);
    added.set_slot_offset_bytes(chunk.slot_offset_bytes);
    added.set_stage_offset_bytes(chunk.stage_offset_bytes);
  }
  for (const TensorPlan& tensor : plan.tensors) {
    v1::TensorPlan& added = *message.add_tensors();
    added.set_chunk(tensor.chunk);
    added.set_offset_numel(tensor.offset_numel);
    added.set_numel(tensor.numel);
  }
  message.set_slot_bytes(plan.slot_bytes);
  message.set_stage_bytes(plan.stage_bytes);
  message.set_gathered_bytes(plan.gathered_bytes);
}

LayerPlan FromMessage(const v1::LayerPlan& message, const LayerSpec& spec) {
  Require(message.slot_bytes() >= 0 && message.stage_bytes() >= 0 && message.gathered_bytes() >= 0,
          "the plan of layer ", spec.name, " has a negative size");
  Require(message.tensors_size() == std::ssize(spec.tensors), "the plan of layer ", spec.name,
          " has ", message.tensors_size(), " tensors instead of ", spec.tensors.size());
  Require(message.chunks_size() <= message.tensors_size(), "the plan of layer ", spec.name, " has ",
          message.chunks_size(), " chunks for ", message.tensors_size(), " tensors");
  LayerPlan plan;
  plan.spec = spec;
  plan.slot_bytes = message.slot_bytes();
  plan.stage_bytes = message.stage_bytes();
  plan.gathered_bytes = message.gathered_bytes();
  for (const v1::ChunkPlan& chunk : message.chunks()) {
    plan.chunks.push_back(ChunkFrom(chunk, spec, message));
  }
  for (int i = 0; i < message.tensors_size(); ++i) {
    plan.tensors.push_back(
        PlaceFrom(message.tensors(i), spec.tensors[static_cast<size_t>(i)], plan.chunks));
  }
  return plan;
}

void ToMessage(const Error& error, v1::Fault& message) {
  message.set_code(static_cast<uint32_t>(error.code()));
  message.set_message(error.what());
}

Error FromMessage(const v1::Fault& message) {
  const bool known = message.code() <= static_cast<uint32_t>(ErrorCode::kInternal);
  return Error(known ? static_cast<ErrorCode>(message.code()) : ErrorCode::kInternal,
               message.message());
}

}  // namespace zerod
