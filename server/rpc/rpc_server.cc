#include "server/rpc/rpc_server.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/rpc/listen_probe.h"
#include "server/rpc/worker_session.h"

namespace zerod {
namespace {

/// Above the limit that a session itself checks, so that its answer names the limit.
constexpr int kReceiveBytesMax = static_cast<int>(WorkerSession::kMessageBytesMax) + (8 << 20);
constexpr int kKeepaliveMs = 5'000;
constexpr int kPingIntervalMinMs = 1'000;

/// Both are switches of the whole process in gRPC; setting them twice is harmless.
void EnableHealthAndReflection() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
}

void Configure(grpc::ServerBuilder& builder) {
  // Two daemons on one port would share its connections instead of one of them failing.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kPingIntervalMinMs);
  builder.SetMaxReceiveMessageSize(kReceiveBytesMax);
  builder.SetMaxSendMessageSize(-1);
  // Only reflection uses threads of the server's own.
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
}

/// gRPC replaces the socket of a living process without a word.
void RequireFreeSocket(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) {
    throw Error(ErrorCode::kAlreadyExists,
                Concat(path, " exists and is not a socket; choose another --socket"));
  }
  try {
    ConnectUnix(path);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnavailable) return;
    throw;
  }
  throw Error(ErrorCode::kAlreadyExists, Concat("another zerod serves the socket ", path,
                                                "; stop it or choose another --socket"));
}

void MakeFolderOf(const std::string& socket_path) {
  const std::filesystem::path folder = std::filesystem::path(socket_path).parent_path();
  std::error_code error;
  if (folder.empty() || std::filesystem::exists(folder, error)) return;
  std::filesystem::create_directories(folder, error);
  if (!error) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  if (error) {
    throw Error(ErrorCode::kInvalidArgument, Concat("cannot make the folder ", folder.string(),
                                                    " of --socket: ", error.message()));
  }
}

}  // namespace

RpcServer::RpcServer(Engine& engine, RpcServerOptions options)
    : socket_path_(std::move(options.socket_path)),
      worker_service_(engine),
      unix_admin_(engine, options.facts),
      tcp_admin_(engine, options.facts) {
  EnableHealthAndReflection();
  MakeFolderOf(socket_path_);
  RequireFreeSocket(socket_path_);
  tcp_server_ = StartTcp(options);
  // Before the control socket: who can say Hello can also ask for memory.
  descriptor_service_ = std::make_unique<DescriptorService>(
      DescriptorSocketPath(socket_path_),
      [&engine](const DescriptorRequest& request, int64_t& size_bytes) {
        return engine.OpenMemory(request, size_bytes);
      });
  unix_admin_.SetAddress(address_);
  tcp_admin_.SetAddress(address_);
  unix_server_ = StartUnix();
  SetServing(false);
}

RpcServer::~RpcServer() {
  Shutdown(std::chrono::milliseconds(0));
  if (unix_server_) unlink(socket_path_.c_str());
}

std::unique_ptr<grpc::Server> RpcServer::StartTcp(const RpcServerOptions& options) {
  grpc::ServerBuilder builder;
  Configure(builder);
  int port = 0;
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&tcp_admin_);
  if (options.peer_service != nullptr) builder.RegisterService(options.peer_service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server || port == 0) {
    const ListenFailure failure = WhyNotListening(options.listen);
    throw Error(failure.in_use ? ErrorCode::kAlreadyExists : ErrorCode::kInvalidArgument,
                Concat("cannot listen on ", options.listen, ": ", failure.reason,
                       failure.in_use ? "; stop what uses it or choose another --listen"
                                      : "; choose another --listen"));
  }
  address_ = Concat(options.listen.substr(0, options.listen.rfind(':')), ":", port);
  return server;
}

std::unique_ptr<grpc::Server> RpcServer::StartUnix() {
  grpc::ServerBuilder builder;
  Configure(builder);
  int selected = 0;
  builder.AddListeningPort("unix:" + socket_path_, grpc::InsecureServerCredentials(), &selected);
  builder.RegisterService(&unix_admin_);
  builder.RegisterService(&worker_service_);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server || selected == 0 || chmod(socket_path_.c_str(), 0600) != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("cannot create the socket ", socket_path_, "; choose another --socket"));
  }
  return server;
}

void RpcServer::SetServing(bool serving) {
  for (const auto* server : {&tcp_server_, &unix_server_}) {
    if (*server) (*server)->GetHealthCheckService()->SetServingStatus(serving);
  }
}

void RpcServer::Shutdown(std::chrono::milliseconds deadline) {
  const auto end = std::chrono::system_clock::now() + deadline;
  for (const auto* server : {&unix_server_, &tcp_server_}) {
    if (*server) (*server)->Shutdown(end);
  }
}

}  // namespace zerod
