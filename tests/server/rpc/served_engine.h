#pragma once

#include <memory>
#include <string>

#include <grpcpp/channel.h>

#include "proto/session.grpc.pb.h"
#include "server/engine/engine.h"
#include "server/rpc/rpc_server.h"

namespace zerod {

/// A folder of its own for sockets; goes away with what is in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// A real engine behind the real servers: one node, a private socket and a free port.
class ServedEngine {
 public:
  explicit ServedEngine(int ranks);
  ~ServedEngine();

  Engine& engine() { return engine_; }
  RpcServer& server() { return *server_; }
  RpcServerOptions MakeOptions(const std::string& socket_path) const;
  std::string socket_path() const { return folder_.path() + "/z"; }
  const std::string& folder() const { return folder_.path(); }
  std::shared_ptr<grpc::Channel> UnixChannel() const;
  std::shared_ptr<grpc::Channel> TcpChannel() const;

  /// Waits up to 5 s until this many workers are attached or attaching.
  bool AwaitSessions(size_t count) const;

 private:
  TemporaryFolder folder_;
  Engine engine_;
  std::unique_ptr<RpcServer> server_;
};

/// A worker's end of a session, speaking plain protobuf. Every wait ends after 10 s.
class RawWorker {
 public:
  explicit RawWorker(const std::shared_ptr<grpc::Channel>& channel);
  ~RawWorker();

  static v1::Hello GoodHello(int rank, int world_size);

  void SendHello(const v1::Hello& hello);
  void Send(v1::WorkerMessage message);

  /// The next message; an empty one when the stream has ended.
  v1::DaemonMessage Receive();
  /// The next message must be a Fault: its text, else what came instead.
  std::string ReceiveFault();
  /// Says Hello as a good worker and returns the Welcome's message.
  v1::DaemonMessage Attach(int rank, int world_size);

  void CloseSide() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  grpc::Status Finish() { return stream_->Finish(); }

  uint64_t epoch = 0;

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::Worker::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::DaemonMessage>> stream_;
};

}  // namespace zerod
