#include "tests/client/small_daemon.h"

#include <chrono>
#include <new>

#include <grpcpp/server_builder.h>
#include <sys/socket.h>

#include "proto/contract/convert.h"
#include "proto/contract/descriptor.h"

namespace zerod {
namespace {

constexpr uint64_t kEpoch = 5;
constexpr uint64_t kToken = 0x1234'5678'9abc'def0;
constexpr int kPollMs = 20;
constexpr int kMessageBytesMax = 32 << 20;

}  // namespace

SmallDaemon::SmallDaemon(std::string socket_path, Script script)
    : socket_path_(std::move(socket_path)),
      script_(std::move(script)),
      page_memory_(SharedMemory::Create("zerod-control-test", kControlPageBytes)),
      page_(*new (page_memory_.data()) ControlPage),
      listener_(ListenUnix(DescriptorSocketPath(socket_path_))) {
  page_.epoch = script_.page_epoch;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket_path_, grpc::InsecureServerCredentials());
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.SetMaxSendMessageSize(kMessageBytesMax);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  descriptors_ = std::jthread([this] { ServeDescriptors(); });
}

SmallDaemon::~SmallDaemon() { Die(); }

void SmallDaemon::Die() {
  stopping_ = true;
  {
    const std::lock_guard lock(mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }
  server_->Shutdown(std::chrono::system_clock::now());
  if (descriptors_.joinable()) descriptors_.join();
}

void SmallDaemon::SendFault(const Error& error) {
  const std::lock_guard lock(mutex_);
  v1::DaemonMessage message;
  message.set_epoch(kEpoch);
  ToMessage(error, *message.mutable_fault());
  link_->Write(message);
}

v1::Hello SmallDaemon::hello() const {
  const std::lock_guard lock(mutex_);
  return hello_;
}

std::vector<v1::Operation> SmallDaemon::operations() const {
  const std::lock_guard lock(mutex_);
  return operations_;
}

grpc::Status SmallDaemon::Session(grpc::ServerContext* context, Link* link) {
  {
    const std::lock_guard lock(mutex_);
    context_ = context;
    link_ = link;
  }
  v1::WorkerMessage message;
  bool open = Greet(*link);
  while (open && link->Read(&message)) {
    const std::lock_guard lock(mutex_);
    if (message.epoch() != kEpoch) return {grpc::StatusCode::ABORTED, "another epoch"};
    for (const v1::Operation& operation : message.submit().operations()) Handle(operation, *link);
    if (message.has_detach()) {
      dropped_ = message.detach().drop();
      v1::DaemonMessage reply;
      reply.mutable_detached();
      if (script_.answers_detach) open = !link->Write(reply);
    }
  }
  const std::lock_guard lock(mutex_);
  context_ = nullptr;
  return grpc::Status::OK;
}

/// Returns whether the worker is attached now.
bool SmallDaemon::Greet(Link& link) {
  v1::WorkerMessage message;
  if (!link.Read(&message)) return false;
  const std::lock_guard lock(mutex_);
  hello_ = message.hello();
  for (const std::string& warning : script_.warnings) {
    v1::DaemonMessage reply;
    reply.mutable_warning()->set_message(warning);
    link.Write(reply);
  }
  v1::DaemonMessage reply;
  if (script_.refusal) {
    ToMessage(*script_.refusal, *reply.mutable_fault());
    link.Write(reply);
    return false;
  }
  reply.set_epoch(kEpoch);
  v1::Welcome& welcome = *reply.mutable_welcome();
  welcome.set_job_id(hello_.job_id());
  welcome.set_created(false);
  welcome.set_step(12);
  welcome.set_dp(1);
  welcome.set_tp(1);
  welcome.set_node_count(1);
  welcome.set_token(kToken);
  welcome.set_private_state(script_.private_state);
  welcome.set_gradient_slots(2);
  welcome.set_deadline_ms(1000);
  if (script_.welcomes) link.Write(reply);
  return true;
}

void SmallDaemon::Handle(const v1::Operation& message, Link& link) {
  operations_.push_back(message);
  const Operation operation = FromMessage(message);
  if (operation.kind == OperationKind::kRegister) {
    LayerPlan plan{.spec = operation.layer_spec,
                   .chunks = {{DType::kFloat32, true, kChunkNumel, kChunkNumel, 0, 0}},
                   .tensors = {{0, 0, 6}},
                   .slot_bytes = kSlotBytes,
                   .stage_bytes = 4 * kChunkNumel,
                   .gathered_bytes = 4 * kChunkNumel};
    v1::DaemonMessage reply;
    reply.set_epoch(kEpoch);
    reply.mutable_plan()->set_ticket(operation.ticket);
    reply.mutable_plan()->set_layer(operation.layer);
    ToMessage(plan, *reply.mutable_plan());
    link.Write(reply);
  }
  if (operation.kind == script_.held || operation.kind == OperationKind::kRelease) return;
  if (operation.kind == OperationKind::kScalar) {
    page_.scalar_ticket = operation.ticket;
    std::copy(operation.values.begin(), operation.values.end(), page_.scalar_values);
  }
  if (operation.kind == OperationKind::kStep) {
    page_.step = {.ticket = operation.ticket, .step = 13, .grad_norm = operation.step.beta1};
  }
  Complete(page_, QueueOf(operation.kind), operation.ticket);
}

void SmallDaemon::ServeDescriptors() {
  while (!stopping_) {
    timeval timeout{0, kPollMs * 1000};
    setsockopt(listener_.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    const FileDescriptor connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.valid()) Answer(connection.get());
  }
}

void SmallDaemon::Answer(int socket) {
  while (!stopping_) {
    try {
      DescriptorRequest request;
      if (!ReceiveRequest(socket, request, kPollMs)) return;
      if (request.token != kToken) {
        SendReply(socket, {0, "a wrong token"}, FileDescriptor(), 1000);
      } else if (request.kind == MemoryKind::kControlPage) {
        SendReply(socket, {kControlPageBytes, ""}, page_memory_.Share(Access::kReadWrite), 1000);
      } else if (request.kind == MemoryKind::kRegion) {
        const int64_t bytes = kRegionHeaderBytes + 4 * kChunkNumel;
        const SharedMemory region = SharedMemory::Create("zerod-region-test", bytes);
        region.data()[kRegionHeaderBytes] = std::byte{static_cast<uint8_t>(request.index)};
        SendReply(socket, {bytes, ""}, region.Share(Access::kReadOnly), 1000);
      } else if (request.kind == MemoryKind::kSlot && request.index < 2) {
        const SharedMemory slot = SharedMemory::Create("zerod-slot-test", kSlotBytes);
        SendReply(socket, {kSlotBytes, ""}, slot.Share(Access::kReadWrite), 1000);
      } else {
        SendReply(socket, {0, "there is no such memory"}, FileDescriptor(), 1000);
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDeadlineExceeded) return;
    }
  }
}

}  // namespace zerod
