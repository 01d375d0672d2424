#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/control_page.h"
#include "server/engine/engine.h"

namespace zerod::testing {

/// Keeps what the engine tells one worker. Thread-safe.
class RecordedEvents final : public WorkerEvents {
 public:
  void OnWelcome(const Welcome& welcome) override;
  void OnPlan(uint64_t ticket, int layer, const LayerPlan& plan) override;
  void OnWarning(const std::string& message) override;
  void OnFault(const Error& error) override;
  void OnDetached() override;

  std::optional<Welcome> welcome() const;
  std::vector<LayerPlan> plans() const;
  std::string warning() const;  ///< the first one; empty if none
  std::string fault() const;    ///< empty if none
  std::optional<ErrorCode> fault_code() const;
  bool detached() const;

 private:
  mutable std::mutex mutex_;
  std::optional<Welcome> welcome_;
  std::vector<LayerPlan> plans_;
  std::string warning_;
  std::optional<Error> fault_;
  bool detached_ = false;
};

/// One rank's side of an attach, without a process: submits operations and maps what it is given.
class TestWorker {
 public:
  TestWorker(Engine& engine, const AttachRequest& request);

  RecordedEvents& events() { return *events_; }
  uint64_t attach_id() const { return attach_id_; }
  /// Waits for the Welcome and maps the control page.
  bool AwaitWelcome();
  std::string AwaitFault();  ///< the message; empty after 10 s without one

  /// Numbers the operation, submits it and returns its ticket.
  uint64_t Submit(Operation operation);
  uint64_t Submit(OperationKind kind, int layer = -1);
  /// Submits all in one message.
  void SubmitTogether(std::vector<Operation> operations);
  bool Await(Queue queue, uint64_t ticket);

  uint64_t Register(const LayerSpec& spec);
  uint64_t Gather(int layer, uint64_t version);
  /// Fills gradient slot 0 and reduces it.
  uint64_t Reduce(int layer, float value);
  uint64_t Step(const StepArguments& arguments, std::vector<double> values = {});
  /// Fills the staging buffer with `value` and writes it from `source_rank`.
  uint64_t Write(int layer, int source_rank, float value);

  /// Maps memory of this attach as floats; the mapping lives as long as the worker.
  std::span<float> Map(MemoryKind kind, int index, int chunk, Access access);
  std::span<float> Parameters(int layer);
  ControlPage& page() { return *reinterpret_cast<ControlPage*>(page_.data()); }
  const AttachRequest& request() const { return request_; }
  uint64_t last_ticket() const { return ticket_; }

 private:
  Engine& engine_;
  AttachRequest request_;
  std::shared_ptr<RecordedEvents> events_ = std::make_shared<RecordedEvents>();
  uint64_t attach_id_ = 0;
  uint64_t ticket_ = 0;
  Mapping page_;
  std::vector<Mapping> mappings_;
};

/// A request of rank `rank` of `world`, all on one node unless `local_rank` says otherwise.
AttachRequest RequestOf(int rank, int world, int local_rank = -1);
/// A layer of one trainable float32 vector named `name`.weight.
LayerSpec VectorLayer(const std::string& name, int64_t numel);
StepArguments Sgd(double learning_rate);

}  // namespace zerod::testing
