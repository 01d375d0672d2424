#include "server/store/job.h"

#include <algorithm>

#include <unistd.h>

#include "proto/contract/error.h"
#include "server/layout/planner.h"
#include "server/layout/predicted_bytes.h"

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
  CheckSpec(spec);
  LayerPlan plan = PlanLayer(spec, placement_.mesh);
  CheckMemory(plan);
  const int index = static_cast<int>(layers_.size());
  layers_.push_back(std::make_unique<LayerStore>(index, std::move(plan), placement_));
  layer_names_.insert(spec.name);
  for (const TensorSpec& tensor : spec.tensors) layers_of_tensors_[tensor.name] = index;
  return *layers_.back();
}

void Job::CheckSpec(const LayerSpec& spec) const {
  auto refuse = [](const std::string& what) { throw Error(ErrorCode::kInvalidArgument, what); };
  if (layers_.size() >= static_cast<size_t>(kLayersMax)) {
    refuse(Concat("layer '", spec.name, "' is one more than the ", kLayersMax,
                  " that a job can have; make the layers larger"));
  }
  if (layer_names_.contains(spec.name)) {
    refuse(Concat("layer '", spec.name, "' is registered twice; names must be unique"));
  }
  auto check_dtype = [&](const std::string& what, DType dtype, bool possible, const char* types) {
    if (possible) return;
    refuse(Concat("layer '", spec.name, "': ", what, " is ", DTypeName(dtype), "; it must be ",
                  types));
  };
  check_dtype("reduce_dtype", spec.reduce_dtype, spec.reduce_dtype == DType::kFloat32, "float32");
  check_dtype("master_dtype", spec.master_dtype, spec.master_dtype == DType::kFloat32, "float32");
  for (const TensorSpec& tensor : spec.tensors) {
    check_dtype(Concat("tensor '", tensor.name, "'"), tensor.dtype, tensor.dtype != DType::kFloat16,
                "float32 or bfloat16");
    const auto known = layers_of_tensors_.find(tensor.name);
    if (known == layers_of_tensors_.end()) continue;
    refuse(Concat("tensor '", tensor.name, "' is in layer '", layers_[known->second]->name(),
                  "' and again in layer '", spec.name, "'; names must be unique"));
  }
}

void Job::CheckMemory(const LayerPlan& plan) const {
  const PredictedBytes rank = PredictBytes({&plan, 1}, 0);
  const int64_t added = rank.Total() * placement_.topology.LocalRanks();
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (StateBytes() + added <= machine) return;
  throw Error(ErrorCode::kResourceExhausted,
              Concat("with layer '", plan.spec.name, "' node ", placement_.topology.node,
                     " would hold ", StateBytes() + added, " bytes of job '", id(),
                     "', more than the machine's ", machine, "; use more nodes"));
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
