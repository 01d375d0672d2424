#pragma once

#include <vector>

namespace zerod::train {

/// SIGINT and SIGTERM while training runs. The first is only noted, so that the running step can
/// be finished; the next one ends the process at once. One object at a time; from its destruction
/// on signals do what they did before.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The signal that came to this process, else 0.
  int Noted() const;
};

/// Ranks see a signal at different times, so all of them stop after the same step: each adds its
/// votes to what a step or a sum carries, and reads the sum.
inline constexpr int kStopVotes = 2;
void AppendStopVotes(int signal, std::vector<double>& values);
/// The signal that ends all ranks, 0 if none has one. The votes are the last values.
int CountStopVotes(const std::vector<double>& values);

}  // namespace zerod::train
