#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "proto/admin.grpc.pb.h"
#include "server/engine/engine.h"
#include "server/rpc/task_thread.h"

namespace zerod {

/// One node as `zeroctl status` lists it.
struct PeerView {
  int node = 0;
  std::string address;
  bool connected = false;
  int ranks = 0;     ///< 0: not known yet
  std::string note;  ///< why it isn't connected
};

/// What the admin service shows beside the engine's reports.
struct AdminFacts {
  std::string version;
  std::string backend;          ///< e.g. "host"
  std::string instruction_set;  ///< e.g. "avx2"
  /// Of all nodes, own included, given the address at which this one listens. Called from any
  /// thread.
  std::function<std::vector<PeerView>(const std::string& address)> peers;
};

/// What zeroctl asks. Requests run one after another on a thread of the service.
class AdminService : public v1::Admin::CallbackService {
 public:
  /// `engine` must outlive the server.
  AdminService(Engine& engine, AdminFacts facts);

  /// Tells where the node listens, once that is known. Any thread.
  void SetAddress(const std::string& address);

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::StatusRequest* request,
                                      v1::StatusReply* reply) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::JobsRequest* request, v1::JobsReply* reply) override;
  grpc::ServerUnaryReactor* DropJob(grpc::CallbackServerContext* context,
                                    const v1::DropJobRequest* request,
                                    v1::DropJobReply* reply) override;
  grpc::ServerUnaryReactor* ListLayers(grpc::CallbackServerContext* context,
                                       const v1::LayersRequest* request,
                                       v1::LayersReply* reply) override;
  grpc::ServerUnaryReactor* ListShards(grpc::CallbackServerContext* context,
                                       const v1::ShardsRequest* request,
                                       v1::ShardsReply* reply) override;
  grpc::ServerUnaryReactor* GetMemory(grpc::CallbackServerContext* context,
                                      const v1::MemoryRequest* request,
                                      v1::MemoryReply* reply) override;
  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const v1::SessionsRequest* request,
                                         v1::SessionsReply* reply) override;
  grpc::ServerUnaryReactor* GetVersion(grpc::CallbackServerContext* context,
                                       const v1::VersionRequest* request,
                                       v1::VersionReply* reply) override;

 private:
  /// Runs `fill` on the service's thread; what it throws becomes the status.
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                   std::function<void()> fill);

  Engine& engine_;
  const AdminFacts facts_;
  std::string address_;  // used by thread_ only
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  TaskThread thread_;  // last: its tasks use the other members
};

}  // namespace zerod
