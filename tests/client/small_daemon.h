#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/server.h>

#include "proto/contract/control_page.h"
#include "proto/contract/error.h"
#include "proto/contract/shared_memory.h"
#include "proto/session.grpc.pb.h"

namespace zerod {

/// The daemon's side of the session protocol without an engine behind it: one rank, every operation
/// completes as soon as it arrives. The real daemon is tested in tests/system; this one can be told
/// to misbehave.
class SmallDaemon final : public v1::Worker::Service {
 public:
  struct Script {
    std::vector<std::string> warnings{};  ///< sent before the welcome
    std::optional<Error> refusal{};       ///< sent instead of the welcome
    bool welcomes = true;
    uint64_t page_epoch = 5;      ///< the welcome says 5
    std::string private_state{};  ///< of the welcome
    OperationKind held{};         ///< operations of this kind never complete
    bool answers_detach = true;
  };

  SmallDaemon(std::string socket_path, Script script);
  ~SmallDaemon() override;

  /// Speaks to the worker that is attached.
  void SendFault(const Error& error);
  /// Ends the process, as far as a worker can see.
  void Die();

  v1::Hello hello() const;
  std::vector<v1::Operation> operations() const;
  bool dropped() const { return dropped_; }

  static constexpr int64_t kSlotBytes = 8192;
  static constexpr int64_t kChunkNumel = 1024;

 private:
  using Link = grpc::ServerReaderWriter<v1::DaemonMessage, v1::WorkerMessage>;

  grpc::Status Session(grpc::ServerContext* context, Link* link) override;
  bool Greet(Link& link);
  void Handle(const v1::Operation& operation, Link& link);
  void ServeDescriptors();
  void Answer(int socket);

  const std::string socket_path_;
  const Script script_;
  SharedMemory page_memory_;
  ControlPage& page_;

  mutable std::mutex mutex_;
  v1::Hello hello_;
  std::vector<v1::Operation> operations_;
  Link* link_ = nullptr;
  grpc::ServerContext* context_ = nullptr;
  std::atomic<bool> dropped_{false};
  std::atomic<bool> stopping_{false};

  FileDescriptor listener_;
  std::unique_ptr<grpc::Server> server_;
  std::jthread descriptors_;
};

}  // namespace zerod
