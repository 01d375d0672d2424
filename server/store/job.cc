#include "server/store/job.h"

#include <algorithm>

#include "proto/contract/error.h"
#include "server/layout/planner.h"

namespace zerod {

Job::Job(Placement placement) : placement_(std::move(placement)) {
  const int local_ranks = placement_.topology.LocalRanks();
  private_state.resize(local_ranks);
  for (int local = 0; local < local_ranks; ++local) {
    records_.push_back(SharedMemory::Create("zerod:record", 2 * kRegionHeaderBytes));
    StateHeader& header = *new (records_.back().data()) StateHeader();
    header.kind = StateKind::kRecord;
    header.rank = placement_.topology.FirstRank(placement_.topology.node) + local;
    SetJobId(header, placement_.job_id);
    new (records_.back().data() + kRegionHeaderBytes) StepProgress();
  }
}

LayerStore& Job::AddLayer(const LayerSpec& spec) {
  for (const auto& layer : layers_) {
    if (layer->name() == spec.name) {
      throw Error(ErrorCode::kInvalidArgument,
                  Concat("layer '", spec.name, "' is registered twice; names must be unique"));
    }
    for (const TensorSpec& known : layer->plan().spec.tensors) {
      for (const TensorSpec& tensor : spec.tensors) {
        if (known.name != tensor.name) continue;
        throw Error(ErrorCode::kInvalidArgument,
                    Concat("tensor '", tensor.name, "' is in layer '", layer->name(),
                           "' and again in layer '", spec.name, "'; names must be unique"));
      }
    }
  }
  const int index = static_cast<int>(layers_.size());
  layers_.push_back(
      std::make_unique<LayerStore>(index, PlanLayer(spec, placement_.mesh), placement_));
  return *layers_.back();
}

uint64_t Job::PlanHash() const {
  uint64_t hash = static_cast<uint64_t>(placement_.mesh.dp) << 32 | placement_.mesh.tp;
  for (const auto& layer : layers_) {
    hash = (hash ^ HashOf(layer->plan().spec)) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 32;
  }
  return hash;
}

int64_t Job::SlotBytes() const {
  int64_t bytes = 0;
  for (const auto& layer : layers_) bytes = std::max(bytes, layer->plan().slot_bytes);
  return bytes;
}

int64_t Job::StateBytes() const {
  int64_t bytes = 0;
  for (const auto& layer : layers_) bytes += layer->ParameterBytes() + layer->StateBytes();
  return bytes;
}

int64_t Job::ParametersNumel() const {
  int64_t numel = 0;
  for (const auto& layer : layers_) {
    for (const TensorPlan& tensor : layer->plan().tensors) numel += tensor.numel;
  }
  return numel;
}

int64_t Job::TrainableNumel() const {
  int64_t numel = 0;
  for (const auto& layer : layers_) {
    for (const TensorPlan& tensor : layer->plan().tensors) {
      if (layer->plan().chunks[tensor.chunk].trainable) numel += tensor.numel;
    }
  }
  return numel;
}

StepProgress& Job::Progress(int local_rank) {
  return *reinterpret_cast<StepProgress*>(records_[local_rank].data() + kRegionHeaderBytes);
}

}  // namespace zerod
