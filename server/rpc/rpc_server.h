#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "server/engine/engine.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/descriptor_service.h"
#include "server/rpc/worker_service.h"

namespace zerod {

struct RpcServerOptions {
  std::string socket_path;  ///< workers and zeroctl; its folder is made if it is missing
  std::string listen;       ///< HOST:PORT; peers, zeroctl, health; port 0: any free one
  AdminFacts facts;
  grpc::Service* peer_service = nullptr;  ///< null for a single node; must outlive the server
};

/// All that listens: control and descriptor socket for workers, the TCP address for everyone else.
/// Admin, health and reflection answer at both; workers are served at the socket only.
class RpcServer {
 public:
  /// Starts to serve. Throws Error: kAlreadyExists when a living process has the socket or the
  /// port, kInvalidArgument for a path or address that can't be used; says what to do. `engine`
  /// must outlive the server.
  RpcServer(Engine& engine, RpcServerOptions options);

  /// Shuts down at once if Shutdown wasn't called, and removes the sockets.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  /// The TCP address with the real port.
  const std::string& address() const { return address_; }

  /// What the health service says.
  void SetServing(bool serving);

  /// Refuses new calls, lets running ones end until the deadline, then cancels them.
  void Shutdown(std::chrono::milliseconds deadline);

 private:
  std::unique_ptr<grpc::Server> StartTcp(const RpcServerOptions& options);
  std::unique_ptr<grpc::Server> StartUnix();

  const std::string socket_path_;
  std::string address_;
  WorkerService worker_service_;
  AdminService unix_admin_;
  AdminService tcp_admin_;
  std::unique_ptr<grpc::Server> tcp_server_;
  std::unique_ptr<DescriptorService> descriptor_service_;
  std::unique_ptr<grpc::Server> unix_server_;
};

}  // namespace zerod
