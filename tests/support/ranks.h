#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "client/session.h"
#include "proto/contract/error.h"
#include "tests/support/daemons.h"

namespace zerod {

/// What one rank's process brought back.
struct RankOutcome {
  bool ok = false;
  int exit_code = -1;   ///< of the process; 128+n for a signal
  std::string error;    ///< text of the exception that ended it
  int error_code = -1;  ///< ErrorCode of it, -1 if it wasn't a zerod::Error
  std::vector<double> values;
  std::chrono::milliseconds took{0};
};

/// Runs `body` once per rank, each in a process of its own that is forked from this one, which must
/// not have started gRPC. Single-threaded LibTorch on both sides. A process that isn't done in time
/// is killed and has the error "timed out".
using RankBody = std::function<std::vector<double>(const SessionOptions&)>;
std::vector<RankOutcome> RunRanks(const Daemons& daemons, const RankBody& body,
                                  std::chrono::seconds timeout = std::chrono::seconds(60));

/// As RunRanks; throws if any rank failed. Returns the values by rank.
std::vector<std::vector<double>> RunRanksOrThrow(
    const Daemons& daemons, const RankBody& body,
    std::chrono::seconds timeout = std::chrono::seconds(60));

/// One rank's process, for tests that kill or stop it half-way.
class RankProcess {
 public:
  RankProcess(const SessionOptions& options, const RankBody& body);
  ~RankProcess();
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;

  int pid() const { return pid_; }
  void Signal(int number) const;
  RankOutcome Wait(std::chrono::milliseconds timeout);

 private:
  int pid_ = -1;
  int pipe_ = -1;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace zerod
