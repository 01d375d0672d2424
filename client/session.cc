#include "client/session.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include <unistd.h>

#include "client/descriptor_client.h"
#include "client/inbox.h"
#include "client/options.h"
#include "client/stream.h"
#include "proto/contract/convert.h"

namespace zerod {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// The daemon notices late ranks itself and says more about them; we only keep from waiting forever.
constexpr seconds kGrace{30};
constexpr seconds kReasonTimeout{5};
constexpr seconds kDetachTimeout{10};
constexpr seconds kEndTimeout{1};
constexpr int kBatchOperationsMax = 256;  // of one message; the daemon takes 4096

v1::WorkerMessage HelloOf(const SessionOptions& options) {
  v1::WorkerMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_protocol_version(kProtocolVersion);
  hello.set_job_id(options.job_id);
  hello.set_mode(static_cast<v1::AttachMode>(options.mode));
  hello.set_rank(options.rank);
  hello.set_world_size(options.world_size);
  hello.set_local_rank(options.local_rank);
  hello.set_tensor_parallel(options.tensor_parallel);
  hello.set_pid(getpid());
  hello.set_program(options.program);
  hello.set_window_bytes(options.window_bytes);
  hello.set_cache_bytes(options.cache_bytes);
  hello.set_gradient_slots(options.gradient_slots);
  return message;
}

SessionInfo InfoOf(const v1::DaemonMessage& message, const SessionOptions& options) {
  const v1::Welcome& welcome = message.welcome();
  const Mesh mesh{welcome.dp(), welcome.tp()};
  if (mesh.dp < 1 || mesh.tp != options.tensor_parallel || mesh.World() != options.world_size) {
    throw Error(ErrorCode::kFailedPrecondition,
                Concat("the daemon runs a mesh of ", mesh.dp, " x ", mesh.tp, "; rank ",
                       options.rank, " expects a world of ", options.world_size, " in groups of ",
                       options.tensor_parallel));
  }
  return {.epoch = message.epoch(),
          .job_id = welcome.job_id(),
          .created = welcome.created(),
          .step = welcome.step(),
          .mesh = mesh,
          .rank = options.rank,
          .node = welcome.node(),
          .node_count = welcome.node_count(),
          .gradient_slots = welcome.gradient_slots(),
          .window_bytes = options.window_bytes,
          .private_state = welcome.private_state()};
}

}  // namespace

class Session::Impl {
 public:
  explicit Impl(const SessionOptions& options);
  ~Impl();

  uint64_t Submit(Operation operation);
  void Flush();
  LayerPlan Register(const LayerSpec& spec);
  void Wait(Queue queue, uint64_t ticket, const std::string& what);
  void Detach(bool drop);
  void ThrowIfOver() const { inbox_.ThrowIfOver(); }
  void Warn(const std::string& message) const { inbox_.Warn(message); }
  Mapping MapMemory(MemoryKind kind, int index, int chunk, int64_t size_bytes);

  const SessionInfo& info() const { return info_; }
  ControlPage& page() const { return *page_; }

 private:
  void Join();
  Clock::time_point WaitDeadline() const { return Clock::now() + wait_timeout_; }
  uint64_t SubmitLocked(const Operation& operation);
  void FlushLocked();

  const SessionOptions options_;
  SessionInfo info_;
  milliseconds wait_timeout_{0};
  std::unique_ptr<DescriptorClient> descriptors_;
  Mapping page_mapping_;
  ControlPage* page_ = nullptr;

  std::mutex mutex_;  // guards what follows, up to the inbox
  v1::WorkerMessage pending_;
  uint64_t last_ticket_ = 0;
  int registered_count_ = 0;
  bool detached_ = false;

  // The stream speaks to the inbox, and the inbox writes the page: destroyed in this order.
  Inbox inbox_;
  std::unique_ptr<Stream> stream_;
};

Session::Impl::Impl(const SessionOptions& options)
    : options_(options), inbox_(options.socket_path, options.on_warning) {
  CheckOptions(options_);
  stream_ =
      std::make_unique<Stream>(OpenChannel(options_.socket_path, options_.connect_timeout), inbox_);
  Join();
}

Session::Impl::~Impl() {
  if (detached_) stream_->Finish(kEndTimeout);
}

void Session::Impl::Join() {
  stream_->Send(HelloOf(options_));
  const v1::DaemonMessage message =
      inbox_.AwaitWelcome(Clock::now() + options_.join_timeout,
                          Concat("rank ", options_.rank, " waited ", options_.join_timeout.count(),
                                 " ms for all ranks of job ", options_.job_id, " to attach"));
  info_ = InfoOf(message, options_);
  wait_timeout_ = milliseconds(std::max(0, message.welcome().deadline_ms())) + kGrace;
  descriptors_ = std::make_unique<DescriptorClient>(options_.socket_path, message.welcome().token(),
                                                    wait_timeout_);
  page_mapping_ = MapMemory(MemoryKind::kControlPage, 0, 0, kControlPageBytes);
  page_ = reinterpret_cast<ControlPage*>(page_mapping_.data());
  if (page_->magic != ControlPage::kMagic || page_->protocol_version != kProtocolVersion ||
      page_->epoch != info_.epoch) {
    throw Error(ErrorCode::kFailedPrecondition,
                Concat("the control page of the daemon at ", options_.socket_path,
                       " has protocol version ", page_->protocol_version, " and epoch ",
                       page_->epoch, "; expected ", kProtocolVersion, " and ", info_.epoch));
  }
  pending_.set_epoch(info_.epoch);
  inbox_.BindPage(*page_);
}

uint64_t Session::Impl::SubmitLocked(const Operation& operation) {
  inbox_.ThrowIfOver();
  v1::Submit& submit = *pending_.mutable_submit();
  v1::Operation& message = *submit.add_operations();
  ToMessage(operation, message);
  message.set_ticket(last_ticket_ + 1);
  try {
    // What the daemon would refuse would end the attach; here only this call fails.
    if (operation.kind == OperationKind::kStep || operation.kind == OperationKind::kRegister) {
      FromMessage(message);
    }
  } catch (...) {
    submit.mutable_operations()->RemoveLast();
    throw;
  }
  ++last_ticket_;
  if (submit.operations_size() == kBatchOperationsMax) FlushLocked();
  return last_ticket_;
}

void Session::Impl::FlushLocked() {
  if (pending_.submit().operations().empty()) return;
  v1::WorkerMessage batch;
  batch.Swap(&pending_);
  pending_.set_epoch(info_.epoch);
  stream_->Send(std::move(batch));
}

uint64_t Session::Impl::Submit(Operation operation) {
  const std::lock_guard lock(mutex_);
  return SubmitLocked(operation);
}

void Session::Impl::Flush() {
  const std::lock_guard lock(mutex_);
  FlushLocked();
}

LayerPlan Session::Impl::Register(const LayerSpec& spec) {
  Operation operation;
  operation.kind = OperationKind::kRegister;
  operation.layer_spec = spec;
  uint64_t ticket = 0;
  int layer = 0;
  {
    const std::lock_guard lock(mutex_);
    layer = registered_count_;
    operation.layer = layer;
    ticket = SubmitLocked(operation);
    ++registered_count_;
    FlushLocked();
  }
  const v1::LayerPlan plan =
      inbox_.AwaitPlan(ticket, WaitDeadline(),
                       Concat("rank ", info_.rank, " waited for the plan of layer ", spec.name));
  if (plan.layer() != layer) {
    throw Error(ErrorCode::kDataLoss, Concat("the daemon planned layer ", plan.layer(),
                                             " instead of ", layer, " (", spec.name, ")"));
  }
  return FromMessage(plan, spec);
}

void Session::Impl::Wait(Queue queue, uint64_t ticket, const std::string& what) {
  Flush();
  switch (WaitFor(*page_, queue, ticket, WaitDeadline())) {
    case WaitResult::kDone:
      return;
    case WaitResult::kAborted:
      inbox_.ThrowReason(Clock::now() + kReasonTimeout);
    case WaitResult::kTimedOut:
      break;
  }
  throw Error(ErrorCode::kDeadlineExceeded,
              Concat("rank ", info_.rank, " waited ", wait_timeout_.count(), " ms for the ", what,
                     " (ticket ", ticket, "); the daemon at ", options_.socket_path,
                     " doesn't answer, look into its log"));
}

void Session::Impl::Detach(bool drop) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.ThrowIfOver();
    FlushLocked();
    v1::WorkerMessage message;
    message.set_epoch(info_.epoch);
    message.mutable_detach()->set_drop(drop);
    stream_->Send(std::move(message));
  }
  inbox_.AwaitDetached(Clock::now() + kDetachTimeout,
                       Concat("rank ", info_.rank, " waited to be detached"));
  const std::lock_guard lock(mutex_);
  detached_ = true;
}

Mapping Session::Impl::MapMemory(MemoryKind kind, int index, int chunk, int64_t size_bytes) {
  inbox_.ThrowIfOver();
  try {
    return descriptors_->Map(kind, index, chunk, size_bytes);
  } catch (const Error&) {
    // If the attach has just ended, its reason is on the way and says more than the refusal.
    inbox_.ThrowIfOverBy(Clock::now() + kEndTimeout);
    throw;
  }
}

std::unique_ptr<Session> Session::Connect(const SessionOptions& options) {
  return std::unique_ptr<Session>(new Session(std::make_unique<Impl>(options)));
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

const SessionInfo& Session::info() const { return impl_->info(); }

uint64_t Session::Submit(Operation operation) { return impl_->Submit(std::move(operation)); }
void Session::Flush() { impl_->Flush(); }

LayerPlan Session::Register(const LayerSpec& spec) { return impl_->Register(spec); }

void Session::Seal() {
  Operation operation;
  operation.kind = OperationKind::kSeal;
  Wait(Queue::kData, Submit(std::move(operation)), "sealing of the model");
}

void Session::Wait(Queue queue, uint64_t ticket, const std::string& what) {
  impl_->Wait(queue, ticket, what);
}

bool Session::IsComplete(Queue queue, uint64_t ticket) const {
  const auto& completed = impl_->page().completed[static_cast<int>(queue)];
  return completed.load(std::memory_order_acquire) >= ticket;
}

StepRecord Session::step_record() const { return impl_->page().step; }

std::vector<double> Session::scalar_values(int count) const {
  ZEROD_CHECK(count >= 0 && count <= kValuesMax, count, " scalar values");
  const double* const values = impl_->page().scalar_values;
  return {values, values + count};
}

Mapping Session::MapRegion(int layer, int chunk, int64_t data_bytes) {
  return impl_->MapMemory(MemoryKind::kRegion, layer, chunk, kRegionHeaderBytes + data_bytes);
}

Mapping Session::MapSlot(int slot) { return impl_->MapMemory(MemoryKind::kSlot, slot, 0, 0); }

Mapping Session::MapStage(int layer, int64_t size_bytes) {
  return impl_->MapMemory(MemoryKind::kStage, layer, 0, size_bytes);
}

void Session::Detach(bool drop) { impl_->Detach(drop); }

void Session::ThrowIfAborted() const { impl_->ThrowIfOver(); }

void Session::Warn(const std::string& message) const { impl_->Warn(message); }

}  // namespace zerod
