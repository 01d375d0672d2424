#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <grpcpp/channel.h>

#include "proto/admin.grpc.pb.h"

namespace zerod::ctl {

/// Asks a daemon's admin service. Every call ends within the timeout and throws Error: kUnavailable
/// when nobody answers at the address, else what the daemon said.
class AdminClient {
 public:
  AdminClient(const std::string& address, std::chrono::milliseconds timeout);

  v1::StatusReply Status();
  v1::JobsReply Jobs();
  void Drop(const std::string& job_id);
  v1::LayersReply Layers(const std::string& job_id);
  v1::ShardsReply Shards(const std::string& job_id, bool checksums);
  v1::MemoryReply Memory(const std::string& job_id);
  v1::SessionsReply Sessions();
  v1::VersionReply Version();

 private:
  template <typename Request, typename Reply>
  Reply Call(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
             const Request& request);

  const std::string address_;
  const std::chrono::milliseconds timeout_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Admin::Stub> stub_;
};

}  // namespace zerod::ctl
