#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/session.h"
#include "tests/support/ranks.h"

namespace zerod {

/// Trains two layers over a Session without LibTorch: every gradient is 1 on every rank, the rate 1
/// and the divisor the world size, so that all weights are minus the number of steps.
class FaultTrainer {
 public:
  /// Attaches, registers and seals.
  explicit FaultTrainer(const SessionOptions& options);

  /// Gathers both layers, waits for them, and keeps them.
  void Gather();
  void Release();
  /// Submits both reduces and waits for them.
  void Reduce();
  void SubmitStep();
  void AwaitStep();
  /// All of a step.
  void Train();
  /// The smallest and the largest weight, of both layers.
  std::vector<double> Weights();
  Session& session() { return *session_; }

 private:
  uint64_t Submit(OperationKind kind, int layer = -1);

  std::unique_ptr<Session> session_;
  std::vector<LayerPlan> plans_;
  std::vector<Mapping> regions_;
  std::vector<Mapping> slots_;
  uint64_t version_ = 0;
  uint64_t step_ticket_ = 0;
};

/// Marks of progress that processes leave for each other in a private folder.
class Marks {
 public:
  void Set(const std::string& name) const;
  bool IsSet(const std::string& name) const;
  /// Throws after ten seconds.
  void Await(const std::string& name) const;
  /// Sets `name`, then sleeps until the process is killed.
  [[noreturn]] void SetAndSleep(const std::string& name) const;

 private:
  ScratchFolder folder_;
};

}  // namespace zerod
