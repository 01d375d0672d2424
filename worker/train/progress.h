#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "worker/train/console.h"
#include "worker/train/step_report.h"

namespace zerod::train {

/// What a progress display says.
struct ProgressState {
  int64_t step = 0;
  int64_t steps = 0;
  double loss = 0;
  double tokens_per_s = 0;
  double remaining_s = 0;
  double epoch = 0;  ///< passes over the data so far; shown from above 0 on
};

/// One line of at most `columns` characters with a bar in the middle, which goes where there is no
/// room for it.
std::string BarText(const ProgressState& state, int columns);

/// The same facts for a file.
std::string PlainText(const ProgressState& state);

/// Shows how training goes: on a terminal a bar, redrawn at most ten times a second; otherwise a
/// line for the first step, for the last, and every five seconds. Rates are averaged over the last
/// steps. One thread.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  /// `steps` is where training ends, `epochs_per_step` the part of the data that one takes (0: not
  /// shown). `columns` asks for the width of the terminal.
  Progress(Console& console, int64_t steps, double epochs_per_step, std::function<int()> columns);

  void Step(const StepReport& report, Clock::time_point now);
  void Evaluated(int64_t step, double loss);

 private:
  Console& console_;
  const int64_t steps_;
  const double epochs_per_step_;
  const std::function<int()> columns_;
  double step_ms_ = 0;  // averages; 0 before the first step
  double tokens_per_step_ = 0;
  bool shown_ = false;
  Clock::time_point last_shown_;
};

}  // namespace zerod::train
