#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/contract/argument.h"
#include "proto/contract/file_range.h"
#include "proto/contract/plan.h"

namespace zerod {

/// The protocol version that both processes of every connection must share.
inline constexpr uint32_t kProtocolVersion = 1;

/// What a ticket does. The numbers travel on the wire.
enum class OperationKind : uint8_t {
  kRegister = 1,  ///< announce the next layer; its plan is the answer
  kSeal = 2,      ///< all layers are registered: gradient slots and optimizer state are made
  kGather = 3,    ///< all-gather a layer at a version and lease it
  kRelease = 4,   ///< give the lease back
  kReduce = 5,    ///< reduce-scatter a gradient slot into the accumulators
  kStep = 6,      ///< optimizer step
  kScalar = 7,    ///< sum of a few float64 over all ranks
  kWrite = 8,     ///< scatter a layer from one rank's staging buffer
  kRead = 9,      ///< gather a layer, or its gradients or moments, into staging buffers
  kImport = 10,   ///< fill a layer of a new job from files, before kSeal
};
/// The last of them.
inline constexpr OperationKind kOperationKindMax = OperationKind::kImport;
const char* OperationKindName(OperationKind kind);

/// Completion counters of the control page, one per queue. Within a queue tickets complete in
/// order, so "counter >= ticket" means done.
enum class Queue : uint8_t { kGather = 0, kReduce = 1, kStep = 2, kScalar = 3, kData = 4 };
inline constexpr int kQueueCount = 5;

/// The queue in which an operation completes; kSeal, kWrite, kRead and kImport complete in kData.
/// kRelease completes with the gathers after it, kRegister by the plan that answers it; both set no
/// counter.
Queue QueueOf(OperationKind kind);

enum class OptimizerKind : uint8_t { kAdamW = 1, kSgd = 2 };

/// Arguments of one optimizer step, the same on all ranks.
struct StepArguments {
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double max_grad_norm = 0.0;     ///< 0: no clipping
  double gradient_divisor = 1.0;  ///< gradients are summed, then divided by this

  bool operator==(const StepArguments&) const = default;
};

/// What kRead and kWrite move. In a staging buffer parameters have the dtype of their chunk,
/// everything else is float32.
enum class Content : uint8_t {
  kParameter = 1,
  kGradient = 2,
  kExpAvg = 3,
  kExpAvgSq = 4,
  kMaster = 5,  ///< the value that updates work on: the parameter itself where there is no master
};
/// The last of them.
inline constexpr Content kContentMax = Content::kMaster;

/// One submitted operation. Which fields count depends on the kind.
struct Operation {
  uint64_t ticket = 0;  ///< from 1, contiguous within an attach
  OperationKind kind = OperationKind::kGather;
  int32_t layer = -1;              ///< index in registration order
  uint64_t version = 0;            ///< kGather: the version it must see
  int32_t slot = -1;               ///< kReduce: index of the gradient slot
  std::vector<bool> has_gradient;  ///< kReduce: one bit per tensor of the layer (spec order)
  StepArguments step;              ///< kStep
  std::vector<double> values;      ///< kStep: summed over ranks (e.g. loss); kScalar: the addends
  Content content = Content::kParameter;  ///< kRead, kWrite
  int32_t source_rank = 0;             ///< kWrite: the rank whose staging buffer holds the values
  bool wants_data = false;             ///< kRead: whether this rank's staging buffer is filled
  LayerSpec layer_spec;                ///< kRegister
  std::string private_state;           ///< kStep: at most kPrivateStateBytesMax, kept with the job
  std::vector<FileRange> import_from;  ///< kImport: one per tensor of the layer (spec order)
};

inline constexpr int64_t kPrivateStateBytesMax = 16 << 20;
inline constexpr int kValuesMax = 16;  ///< entries of Operation::values

/// What all ranks must agree on for one ticket.
struct Fingerprint {
  uint64_t ticket = 0;
  OperationKind kind = OperationKind::kGather;
  int32_t layer = -1;
  uint64_t version = 0;
  uint64_t arguments_hash = 0;           ///< of everything else that must be equal
  std::vector<Argument> arguments = {};  ///< the same in words, to name a difference; may be cut

  bool operator==(const Fingerprint&) const = default;
};
Fingerprint FingerprintOf(const Operation& operation);

/// Stable 64-bit hash (FNV-1a) of a layer's specification.
uint64_t HashOf(const LayerSpec& spec);

}  // namespace zerod
