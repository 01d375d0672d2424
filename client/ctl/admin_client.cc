#include "client/ctl/admin_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include "proto/contract/status.h"

namespace zerod::ctl {
namespace {

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

AdminClient::AdminClient(const std::string& address, std::chrono::milliseconds timeout)
    : address_(address),
      timeout_(timeout),
      channel_(MakeChannel(address)),
      stub_(v1::Admin::NewStub(channel_)) {}

template <typename Request, typename Reply>
Reply AdminClient::Call(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*,
                                                                const Request&, Reply*),
                        const Request& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout_);
  Reply reply;
  const grpc::Status status = (stub_.get()->*method)(&context, request, &reply);
  const bool connected = channel_->GetState(false) == GRPC_CHANNEL_READY;
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE ||
      (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && !connected)) {
    throw Error(ErrorCode::kUnavailable,
                Concat("cannot connect to ", address_,
                       "; is zerod running there? --address names another daemon"));
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    throw Error(ErrorCode::kDeadlineExceeded,
                Concat("the daemon at ", address_, " did not answer within ", timeout_.count(),
                       " ms; --timeout waits longer"));
  }
  ThrowIfError(status);
  return reply;
}

v1::StatusReply AdminClient::Status() {
  return Call(&v1::Admin::Stub::GetStatus, v1::StatusRequest());
}

v1::JobsReply AdminClient::Jobs() { return Call(&v1::Admin::Stub::ListJobs, v1::JobsRequest()); }

void AdminClient::Drop(const std::string& job_id) {
  v1::DropJobRequest request;
  request.set_job_id(job_id);
  Call(&v1::Admin::Stub::DropJob, request);
}

v1::LayersReply AdminClient::Layers(const std::string& job_id) {
  v1::LayersRequest request;
  request.set_job_id(job_id);
  return Call(&v1::Admin::Stub::ListLayers, request);
}

v1::ShardsReply AdminClient::Shards(const std::string& job_id, bool checksums) {
  v1::ShardsRequest request;
  request.set_job_id(job_id);
  request.set_checksums(checksums);
  return Call(&v1::Admin::Stub::ListShards, request);
}

v1::MemoryReply AdminClient::Memory(const std::string& job_id) {
  v1::MemoryRequest request;
  request.set_job_id(job_id);
  return Call(&v1::Admin::Stub::GetMemory, request);
}

v1::SessionsReply AdminClient::Sessions() {
  return Call(&v1::Admin::Stub::ListSessions, v1::SessionsRequest());
}

v1::VersionReply AdminClient::Version() {
  return Call(&v1::Admin::Stub::GetVersion, v1::VersionRequest());
}

}  // namespace zerod::ctl
