#include "server/rpc/admin_service.h"

#include <utility>

#include "proto/contract/status.h"
#include "server/rpc/caught_error.h"
#include "server/rpc/process_memory.h"
#include "server/rpc/report_message.h"

namespace zerod {

AdminService::AdminService(Engine& engine, AdminFacts facts)
    : engine_(engine), facts_(std::move(facts)) {}

void AdminService::SetAddress(const std::string& address) {
  const bool queued = thread_.Post([this, address] { address_ = address; });
  ZEROD_CHECK(queued, "the address comes before any request");
}

grpc::ServerUnaryReactor* AdminService::Answer(grpc::CallbackServerContext* context,
                                               std::function<void()> fill) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool queued = thread_.Post([reactor, fill = std::move(fill)] {
    grpc::Status status;
    try {
      fill();
    } catch (...) {
      status = ToStatus(CaughtError());
    }
    reactor->Finish(status);
  });
  if (!queued) {
    reactor->Finish(ToStatus(
        Error(ErrorCode::kResourceExhausted,
              Concat(TaskThread::kTasksMax, " admin requests wait already; ask again later"))));
  }
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::GetStatus(grpc::CallbackServerContext* context,
                                                  const v1::StatusRequest*,
                                                  v1::StatusReply* reply) {
  return Answer(context, [this, reply] {
    ToMessage(engine_.Status(), *reply);
    const auto uptime = std::chrono::steady_clock::now() - start_;
    reply->set_uptime_s(std::chrono::duration_cast<std::chrono::seconds>(uptime).count());
    for (const PeerView& peer : facts_.peers(address_)) {
      v1::PeerStatus& message = *reply->add_peers();
      message.set_node(peer.node);
      message.set_address(peer.address);
      message.set_connected(peer.connected);
      message.set_ranks(peer.ranks);
      message.set_note(peer.note);
    }
  });
}

grpc::ServerUnaryReactor* AdminService::ListJobs(grpc::CallbackServerContext* context,
                                                 const v1::JobsRequest*, v1::JobsReply* reply) {
  return Answer(context, [this, reply] {
    for (const JobReport& job : engine_.Jobs()) ToMessage(job, *reply->add_jobs());
  });
}

grpc::ServerUnaryReactor* AdminService::DropJob(grpc::CallbackServerContext* context,
                                                const v1::DropJobRequest* request,
                                                v1::DropJobReply*) {
  return Answer(context, [this, request] {
    if (request->job_id().empty()) {
      throw Error(ErrorCode::kInvalidArgument, "name the job to drop");
    }
    engine_.DropJob(request->job_id());
  });
}

grpc::ServerUnaryReactor* AdminService::ListLayers(grpc::CallbackServerContext* context,
                                                   const v1::LayersRequest* request,
                                                   v1::LayersReply* reply) {
  return Answer(context, [this, request, reply] {
    reply->set_job_id(engine_.ResolveJob(request->job_id()));
    for (const LayerReport& layer : engine_.Layers(reply->job_id())) {
      ToMessage(layer, *reply->add_layers());
    }
  });
}

grpc::ServerUnaryReactor* AdminService::ListShards(grpc::CallbackServerContext* context,
                                                   const v1::ShardsRequest* request,
                                                   v1::ShardsReply* reply) {
  return Answer(context, [this, request, reply] {
    reply->set_job_id(engine_.ResolveJob(request->job_id()));
    for (const ShardReport& shard : engine_.Shards(reply->job_id(), request->checksums())) {
      ToMessage(shard, *reply->add_shards());
    }
  });
}

grpc::ServerUnaryReactor* AdminService::GetMemory(grpc::CallbackServerContext* context,
                                                  const v1::MemoryRequest* request,
                                                  v1::MemoryReply* reply) {
  return Answer(context, [this, request, reply] {
    reply->set_job_id(engine_.ResolveJob(request->job_id()));
    for (const MemoryReport& memory : engine_.Memory(reply->job_id())) {
      ToMessage(memory, *reply->add_classes());
    }
    reply->set_process_pss_bytes(ProcessPssBytes());
  });
}

grpc::ServerUnaryReactor* AdminService::ListSessions(grpc::CallbackServerContext* context,
                                                     const v1::SessionsRequest*,
                                                     v1::SessionsReply* reply) {
  return Answer(context, [this, reply] {
    for (const SessionReport& session : engine_.Sessions()) {
      ToMessage(session, *reply->add_sessions());
    }
  });
}

grpc::ServerUnaryReactor* AdminService::GetVersion(grpc::CallbackServerContext* context,
                                                   const v1::VersionRequest*,
                                                   v1::VersionReply* reply) {
  return Answer(context, [this, reply] {
    reply->set_version(facts_.version);
    reply->set_protocol_version(kProtocolVersion);
    reply->set_backend(facts_.backend);
    reply->set_instruction_set(facts_.instruction_set);
  });
}

}  // namespace zerod
