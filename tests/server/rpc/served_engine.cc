#include "tests/server/rpc/served_engine.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <unistd.h>

#include "proto/contract/error.h"

namespace zerod {
namespace {

/// As in zerod, the library stays up: its shutdown may wait ten seconds for unread messages.
const bool kGrpcStaysUp = (grpc_init(), true);

EngineOptions OneNode(int ranks) {
  EngineOptions options;
  options.ranks = ranks;
  return options;
}

/// A channel of its own: gRPC would otherwise share one connection among equal channels.
std::shared_ptr<grpc::Channel> NewChannel(const std::string& target) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  ZEROD_CHECK(kGrpcStaysUp, "initialised before any test");
  std::string pattern = std::filesystem::temp_directory_path() / "zerod-rpc-XXXXXX";
  path_ = mkdtemp(pattern.data());
}

TemporaryFolder::~TemporaryFolder() { std::filesystem::remove_all(path_); }

ServedEngine::ServedEngine(int ranks) : engine_(OneNode(ranks)) {
  engine_.SetPeerLink(nullptr);
  server_ = std::make_unique<RpcServer>(engine_, MakeOptions(socket_path()));
}

ServedEngine::~ServedEngine() {
  engine_.Stop("the test is over");
  server_->Shutdown(std::chrono::seconds(2));
}

RpcServerOptions ServedEngine::MakeOptions(const std::string& socket_path) const {
  RpcServerOptions options;
  options.socket_path = socket_path;
  options.listen = "127.0.0.1:0";
  options.facts.version = "1.2.3";
  options.facts.backend = "host";
  options.facts.instruction_set = "any";
  options.facts.peers = [](const std::string& address) {
    return std::vector<PeerView>{{0, address, true, 2, ""}};
  };
  return options;
}

std::shared_ptr<grpc::Channel> ServedEngine::UnixChannel() const {
  return NewChannel("unix:" + socket_path());
}

std::shared_ptr<grpc::Channel> ServedEngine::TcpChannel() const {
  return NewChannel(server_->address());
}

bool ServedEngine::AwaitSessions(size_t count) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (engine_.Sessions().size() != count) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

RawWorker::RawWorker(const std::shared_ptr<grpc::Channel>& channel)
    : stub_(v1::Worker::NewStub(channel)) {
  context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  stream_ = stub_->Session(&context_);
}

RawWorker::~RawWorker() {
  context_.TryCancel();
  v1::DaemonMessage ignored;
  while (stream_->Read(&ignored)) {
  }
}

v1::Hello RawWorker::GoodHello(int rank, int world_size) {
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_job_id("job");
  hello.set_mode(v1::ATTACH_MODE_ATTACH_OR_CREATE);
  hello.set_rank(rank);
  hello.set_world_size(world_size);
  hello.set_local_rank(rank);
  hello.set_tensor_parallel(1);
  hello.set_pid(getpid());
  hello.set_program("raw");
  hello.set_cache_bytes(-1);
  hello.set_gradient_slots(2);
  return hello;
}

void RawWorker::SendHello(const v1::Hello& hello) {
  v1::WorkerMessage message;
  *message.mutable_hello() = hello;
  stream_->Write(message);
}

void RawWorker::Send(v1::WorkerMessage message) {
  message.set_epoch(epoch);
  stream_->Write(message);
}

v1::DaemonMessage RawWorker::Receive() {
  v1::DaemonMessage message;
  if (!stream_->Read(&message)) return {};
  return message;
}

std::string RawWorker::ReceiveFault() {
  const v1::DaemonMessage message = Receive();
  return message.has_fault() ? message.fault().message()
                             : "(not a fault) " + message.ShortDebugString();
}

v1::DaemonMessage RawWorker::Attach(int rank, int world_size) {
  SendHello(GoodHello(rank, world_size));
  v1::DaemonMessage message = Receive();
  epoch = message.epoch();
  return message;
}

}  // namespace zerod
