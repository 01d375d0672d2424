#include "proto/contract/operation.h"

#include <bit>
#include <string_view>

#include "proto/contract/error.h"

namespace zerod {
namespace {

/// FNV-1a over the bytes of what is added; strings and lists carry their length.
class Hasher {
 public:
  void Add(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) Byte(static_cast<uint8_t>(value >> shift));
  }
  void Add(double value) { Add(std::bit_cast<uint64_t>(value)); }
  void Add(std::string_view text) {
    Add(static_cast<uint64_t>(text.size()));
    for (char c : text) Byte(static_cast<uint8_t>(c));
  }
  uint64_t value() const { return state_; }

 private:
  void Byte(uint8_t byte) { state_ = (state_ ^ byte) * 0x100000001b3ull; }
  uint64_t state_ = 0xcbf29ce484222325ull;
};

void AddStep(Hasher& hasher, const StepArguments& step) {
  hasher.Add(static_cast<uint64_t>(step.optimizer));
  for (double value : {step.learning_rate, step.beta1, step.beta2, step.eps, step.weight_decay,
                       step.max_grad_norm, step.gradient_divisor}) {
    hasher.Add(value);
  }
}

}  // namespace

int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 4;
    case DType::kBFloat16:
      return 2;
    case DType::kFloat16:
      return 2;
  }
  throw Error(ErrorCode::kInvalidArgument,
              Concat("unknown element type ", static_cast<int>(dtype)));
}

const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
  }
  return "unknown";
}

const char* OperationKindName(OperationKind kind) {
  switch (kind) {
    case OperationKind::kRegister:
      return "register";
    case OperationKind::kSeal:
      return "seal";
    case OperationKind::kGather:
      return "gather";
    case OperationKind::kRelease:
      return "release";
    case OperationKind::kReduce:
      return "reduce";
    case OperationKind::kStep:
      return "step";
    case OperationKind::kScalar:
      return "scalar";
    case OperationKind::kWrite:
      return "write";
    case OperationKind::kRead:
      return "read";
    case OperationKind::kImport:
      return "import";
  }
  return "unknown";
}

Queue QueueOf(OperationKind kind) {
  switch (kind) {
    case OperationKind::kGather:
    case OperationKind::kRelease:
      return Queue::kGather;
    case OperationKind::kReduce:
      return Queue::kReduce;
    case OperationKind::kStep:
      return Queue::kStep;
    case OperationKind::kScalar:
      return Queue::kScalar;
    case OperationKind::kRegister:
    case OperationKind::kSeal:
    case OperationKind::kWrite:
    case OperationKind::kRead:
    case OperationKind::kImport:
      return Queue::kData;
  }
  ZEROD_CHECK(false, "operation kind ", static_cast<int>(kind));
  return Queue::kData;
}

uint64_t HashOf(const LayerSpec& spec) {
  Hasher hasher;
  hasher.Add(std::string_view(spec.name));
  hasher.Add(static_cast<uint64_t>(spec.reduce_dtype));
  hasher.Add(static_cast<uint64_t>(spec.master_dtype));
  hasher.Add(static_cast<uint64_t>(spec.tensors.size()));
  for (const TensorSpec& tensor : spec.tensors) {
    hasher.Add(std::string_view(tensor.name));
    hasher.Add(static_cast<uint64_t>(tensor.shape.size()));
    for (int64_t size : tensor.shape) hasher.Add(static_cast<uint64_t>(size));
    hasher.Add(static_cast<uint64_t>(tensor.dtype));
    hasher.Add(static_cast<uint64_t>(tensor.trainable));
    hasher.Add(static_cast<double>(tensor.lr_scale));
    hasher.Add(static_cast<uint64_t>(tensor.decay));
  }
  return hasher.value();
}

Fingerprint FingerprintOf(const Operation& operation) {
  Hasher hasher;
  switch (operation.kind) {
    case OperationKind::kRegister:
      hasher.Add(HashOf(operation.layer_spec));
      break;
    case OperationKind::kStep:
      AddStep(hasher, operation.step);
      hasher.Add(static_cast<uint64_t>(operation.values.size()));
      break;
    case OperationKind::kScalar:
      hasher.Add(static_cast<uint64_t>(operation.values.size()));
      break;
    case OperationKind::kWrite:
    case OperationKind::kRead:
      hasher.Add(static_cast<uint64_t>(operation.content));
      hasher.Add(static_cast<uint64_t>(operation.source_rank));
      break;
    case OperationKind::kImport:
      hasher.Add(static_cast<uint64_t>(operation.import_from.size()));
      for (const FileRange& range : operation.import_from) {
        hasher.Add(std::string_view(range.path));
        hasher.Add(static_cast<uint64_t>(range.offset_bytes));
        hasher.Add(static_cast<uint64_t>(range.dtype));
      }
      break;
    default:
      break;
  }
  return {operation.ticket,  operation.kind, operation.layer,
          operation.version, hasher.value(), ArgumentsOf(operation)};
}

}  // namespace zerod
