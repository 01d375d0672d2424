#include "tests/server/engine/attached_engine.h"

#include <algorithm>
#include <chrono>

#include "tests/support/wait_until.h"

namespace zerod::testing {
namespace {

constexpr std::chrono::seconds kPatience{10};

}  // namespace

void RecordedEvents::OnWelcome(const Welcome& welcome) {
  const std::lock_guard lock(mutex_);
  welcome_ = welcome;
}
void RecordedEvents::OnPlan(uint64_t, int, const LayerPlan& plan) {
  const std::lock_guard lock(mutex_);
  plans_.push_back(plan);
}
void RecordedEvents::OnWarning(const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (warning_.empty()) warning_ = message;
}
void RecordedEvents::OnFault(const Error& error) {
  const std::lock_guard lock(mutex_);
  fault_ = error;
}
void RecordedEvents::OnDetached() {
  const std::lock_guard lock(mutex_);
  detached_ = true;
}
std::optional<Welcome> RecordedEvents::welcome() const {
  const std::lock_guard lock(mutex_);
  return welcome_;
}
std::vector<LayerPlan> RecordedEvents::plans() const {
  const std::lock_guard lock(mutex_);
  return plans_;
}
std::string RecordedEvents::warning() const {
  const std::lock_guard lock(mutex_);
  return warning_;
}
std::string RecordedEvents::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_ ? fault_->what() : "";
}
std::optional<ErrorCode> RecordedEvents::fault_code() const {
  const std::lock_guard lock(mutex_);
  if (!fault_) return std::nullopt;
  return fault_->code();
}
bool RecordedEvents::detached() const {
  const std::lock_guard lock(mutex_);
  return detached_;
}

TestWorker::TestWorker(Engine& engine, const AttachRequest& request)
    : engine_(engine), request_(request), attach_id_(engine.Attach(request, events_)) {}

bool TestWorker::AwaitWelcome() {
  if (!WaitUntil(kPatience, [&] { return events_->welcome().has_value(); })) return false;
  int64_t size_bytes = 0;
  const FileDescriptor fd = engine_.OpenMemory(
      {.token = events_->welcome()->token, .kind = MemoryKind::kControlPage}, size_bytes);
  page_ = MapShared(fd, size_bytes, Access::kReadWrite);
  return true;
}

std::string TestWorker::AwaitFault() {
  WaitUntil(kPatience, [&] { return !events_->fault().empty(); });
  return events_->fault();
}

void TestWorker::SubmitTogether(std::vector<Operation> operations) {
  for (Operation& operation : operations) operation.ticket = ++ticket_;
  engine_.Submit(attach_id_, events_->welcome()->epoch, std::move(operations));
}

uint64_t TestWorker::Submit(Operation operation) {
  SubmitTogether({std::move(operation)});
  return ticket_;
}

uint64_t TestWorker::Submit(OperationKind kind, int layer) {
  Operation operation;
  operation.kind = kind;
  operation.layer = layer;
  return Submit(operation);
}

bool TestWorker::Await(Queue queue, uint64_t ticket) {
  return WaitFor(page(), queue, ticket, std::chrono::steady_clock::now() + kPatience) ==
         WaitResult::kDone;
}

uint64_t TestWorker::Register(const LayerSpec& spec) {
  Operation operation;
  operation.kind = OperationKind::kRegister;
  operation.layer_spec = spec;
  return Submit(operation);
}

uint64_t TestWorker::Gather(int layer, uint64_t version) {
  Operation operation;
  operation.kind = OperationKind::kGather;
  operation.layer = layer;
  operation.version = version;
  return Submit(operation);
}

uint64_t TestWorker::Reduce(int layer, float value) {
  const LayerPlan plan = events_->plans().at(layer);
  const std::span<float> slot = Map(MemoryKind::kSlot, 0, 0, Access::kReadWrite);
  std::ranges::fill(slot, 0.0f);
  for (const TensorPlan& tensor : plan.tensors) {
    const ChunkPlan& chunk = plan.chunks[tensor.chunk];
    if (!chunk.trainable) continue;
    const size_t begin = chunk.slot_offset_bytes / sizeof(float) + tensor.offset_numel;
    std::ranges::fill(slot.subspan(begin, tensor.numel), value);
  }
  Operation operation;
  operation.kind = OperationKind::kReduce;
  operation.layer = layer;
  operation.slot = 0;
  operation.has_gradient.assign(plan.tensors.size(), true);
  return Submit(operation);
}

uint64_t TestWorker::Step(const StepArguments& arguments, std::vector<double> values) {
  Operation operation;
  operation.kind = OperationKind::kStep;
  operation.step = arguments;
  operation.values = std::move(values);
  operation.private_state = Concat("state of rank ", request_.rank);
  return Submit(operation);
}

uint64_t TestWorker::Write(int layer, int source_rank, float value) {
  if (source_rank == request_.rank) {
    std::ranges::fill(Map(MemoryKind::kStage, layer, 0, Access::kReadWrite), value);
  }
  Operation operation;
  operation.kind = OperationKind::kWrite;
  operation.layer = layer;
  operation.source_rank = source_rank;
  return Submit(operation);
}

std::span<float> TestWorker::Map(MemoryKind kind, int index, int chunk, Access access) {
  int64_t size_bytes = 0;
  DescriptorRequest request;
  request.token = events_->welcome()->token;
  request.kind = kind;
  request.index = index;
  request.chunk = chunk;
  const FileDescriptor fd = engine_.OpenMemory(request, size_bytes);
  mappings_.push_back(MapShared(fd, size_bytes, access));
  return {reinterpret_cast<float*>(mappings_.back().data()), size_bytes / sizeof(float)};
}

std::span<float> TestWorker::Parameters(int layer) {
  return Map(MemoryKind::kRegion, layer, 0, Access::kReadOnly)
      .subspan(kRegionHeaderBytes / sizeof(float));
}

AttachRequest RequestOf(int rank, int world, int local_rank) {
  AttachRequest request;
  request.job_id = "job";
  request.rank = rank;
  request.world_size = world;
  request.local_rank = local_rank < 0 ? rank : local_rank;
  request.pid = 1000 + rank;
  request.program = "test";
  return request;
}

LayerSpec VectorLayer(const std::string& name, int64_t numel) {
  LayerSpec spec;
  spec.name = name;
  spec.tensors.push_back({.name = name + ".weight", .shape = {numel}});
  return spec;
}

StepArguments Sgd(double learning_rate) {
  StepArguments arguments;
  arguments.optimizer = OptimizerKind::kSgd;
  arguments.learning_rate = learning_rate;
  return arguments;
}

}  // namespace zerod::testing
