#include "tests/system/fault_trainer.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include <unistd.h>

namespace zerod {
namespace {

constexpr int64_t kNumel = 6000;
constexpr int kLayers = 2;

}  // namespace

FaultTrainer::FaultTrainer(const SessionOptions& options) : session_(Session::Connect(options)) {
  version_ = session_->info().step;
  for (int layer = 0; layer < kLayers; ++layer) {
    const LayerSpec spec{.name = Concat("layer", layer),
                         .tensors = {{.name = Concat("weight", layer), .shape = {kNumel}}}};
    plans_.push_back(session_->Register(spec));
    regions_.push_back(session_->MapRegion(layer, 0, plans_[layer].chunks[0].RegionBytes()));
  }
  session_->Seal();
  for (int slot = 0; slot < kLayers; ++slot) slots_.push_back(session_->MapSlot(slot));
}

uint64_t FaultTrainer::Submit(OperationKind kind, int layer) {
  Operation operation;
  operation.kind = kind;
  operation.layer = layer;
  if (kind == OperationKind::kGather) operation.version = version_;
  return session_->Submit(std::move(operation));
}

void FaultTrainer::Gather() {
  uint64_t ticket = 0;
  for (int layer = 0; layer < kLayers; ++layer) ticket = Submit(OperationKind::kGather, layer);
  session_->Wait(Queue::kGather, ticket, "gather of both layers");
}

void FaultTrainer::Release() {
  for (int layer = 0; layer < kLayers; ++layer) Submit(OperationKind::kRelease, layer);
  session_->Flush();
}

void FaultTrainer::Reduce() {
  uint64_t ticket = 0;
  for (int layer = 0; layer < kLayers; ++layer) {
    const int64_t offset_bytes = plans_[layer].chunks[0].slot_offset_bytes;
    auto* gradient = reinterpret_cast<float*>(slots_[layer].data() + offset_bytes);
    std::fill_n(gradient, kNumel, 1.0f);
    std::fill(gradient + kNumel, gradient + plans_[layer].chunks[0].padded_numel, 0.0f);
    Operation operation;
    operation.kind = OperationKind::kReduce;
    operation.layer = layer;
    operation.slot = layer;
    operation.has_gradient = {true};
    ticket = session_->Submit(std::move(operation));
  }
  session_->Wait(Queue::kReduce, ticket, "reduces of both layers");
}

void FaultTrainer::SubmitStep() {
  Operation operation;
  operation.kind = OperationKind::kStep;
  operation.step.optimizer = OptimizerKind::kSgd;
  operation.step.learning_rate = 1;
  operation.step.gradient_divisor = session_->info().mesh.World();
  step_ticket_ = session_->Submit(std::move(operation));
  session_->Flush();
  ++version_;
}

void FaultTrainer::AwaitStep() {
  session_->Wait(Queue::kStep, step_ticket_, Concat("step ", version_));
}

void FaultTrainer::Train() {
  Gather();
  Release();
  Reduce();
  SubmitStep();
  AwaitStep();
}

std::vector<double> FaultTrainer::Weights() {
  Gather();
  double smallest = 1e9;
  double largest = -1e9;
  for (const Mapping& region : regions_) {
    const auto* weights = reinterpret_cast<const float*>(region.data() + kRegionHeaderBytes);
    const auto [low, high] = std::minmax_element(weights, weights + kNumel);
    smallest = std::min<double>(smallest, *low);
    largest = std::max<double>(largest, *high);
  }
  Release();
  return {smallest, largest};
}

void Marks::Set(const std::string& name) const { std::ofstream(folder_.File(name)) << "set"; }

bool Marks::IsSet(const std::string& name) const {
  return std::filesystem::exists(folder_.path() / name);
}

void Marks::Await(const std::string& name) const {
  if (!WaitUntil(std::chrono::seconds(10), [&] { return IsSet(name); })) {
    throw std::runtime_error("nobody set the mark " + name);
  }
}

void Marks::SetAndSleep(const std::string& name) const {
  Set(name);
  for (;;) pause();
}

}  // namespace zerod
