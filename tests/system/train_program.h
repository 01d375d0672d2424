#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/child_process.h"
#include "tests/support/daemons.h"
#include "tests/support/scratch_folder.h"

namespace zerod {

/// zerod-train as real processes, one for every rank of some daemons.
class TrainProgram {
 public:
  /// Starts all ranks with the same arguments.
  TrainProgram(const Daemons& daemons, const std::vector<std::string>& arguments);

  ChildProcess& rank(int index) { return *processes_[static_cast<size_t>(index)]; }
  int world() const { return static_cast<int>(processes_.size()); }
  std::string output(int rank) const { return ReadWholeFile(folder_.File(Name("out", rank))); }
  std::string error(int rank) const { return ReadWholeFile(folder_.File(Name("err", rank))); }

  /// Waits for all; fails the test, with what they wrote, if one doesn't end with `exit_code`.
  void ExpectEnd(int exit_code, std::chrono::seconds timeout = std::chrono::seconds(120));

 private:
  static std::string Name(const char* kind, int rank) { return kind + std::to_string(rank); }

  ScratchFolder folder_;
  std::vector<std::unique_ptr<ChildProcess>> processes_;
};

/// "loss grad_norm" of every step of a log, in full precision, and "eval eval_loss".
std::vector<std::string> ReadLosses(const std::string& log_path);

}  // namespace zerod
