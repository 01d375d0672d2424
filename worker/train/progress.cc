#include "worker/train/progress.h"

#include <algorithm>
#include <utility>

#include "worker/train/figures.h"
#include "worker/train/summary.h"

namespace zerod::train {
namespace {

constexpr std::chrono::milliseconds kBarPeriod{100};
constexpr std::chrono::seconds kLinePeriod{5};
constexpr int kBarColumnsMin = 10;
constexpr int kBarColumnsMax = 40;
/// Weight of the newest step in the averages.
constexpr double kNewest = 0.1;

std::string EpochText(double epoch) { return epoch > 0 ? "  epoch " + FixedText(epoch, 2) : ""; }

std::string Padded(const std::string& text, size_t columns) {
  return std::string(columns - std::min(columns, text.size()), ' ') + text;
}

}  // namespace

std::string BarText(const ProgressState& state, int columns) {
  const double part = state.steps > 0 ? static_cast<double>(state.step) / state.steps : 1;
  const std::string steps = std::to_string(state.steps);
  const std::string head = Padded(std::to_string(static_cast<int>(100 * part)), 3) + "%";
  const std::string tail = Padded(std::to_string(state.step), steps.size()) + "/" + steps +
                           EpochText(state.epoch) + "  loss " + FixedText(state.loss, 3) + "  " +
                           Padded(CompactText(state.tokens_per_s), 5) + " tokens/s  ETA " +
                           DurationText(state.remaining_s);
  // One column stays free: some terminals wrap when the last is written.
  const int room = columns - 1 - static_cast<int>(head.size() + tail.size()) - 4;
  if (room < kBarColumnsMin) {
    return (head + " " + tail).substr(0, static_cast<size_t>(std::max(columns - 1, 0)));
  }
  const int length = std::min(room, kBarColumnsMax);
  const int done = static_cast<int>(part * length);
  return head + " [" + std::string(done, '#') + std::string(length - done, '.') + "] " + tail;
}

std::string PlainText(const ProgressState& state) {
  const std::string steps = std::to_string(state.steps);
  return "step " + Padded(std::to_string(state.step), steps.size()) + "/" + steps +
         EpochText(state.epoch) + "  loss " + FixedText(state.loss, 3) + "  " +
         Padded(CompactText(state.tokens_per_s), 5) + " tokens/s  ETA " +
         DurationText(state.remaining_s);
}

Progress::Progress(Console& console, int64_t steps, double epochs_per_step,
                   std::function<int()> columns)
    : console_(console),
      steps_(steps),
      epochs_per_step_(epochs_per_step),
      columns_(std::move(columns)) {}

void Progress::Step(const StepReport& report, Clock::time_point now) {
  const double tokens = report.tokens_per_s * report.step_ms / 1000;
  const double weight = step_ms_ > 0 ? kNewest : 1;
  step_ms_ += weight * (report.step_ms - step_ms_);
  tokens_per_step_ += weight * (tokens - tokens_per_step_);
  const bool terminal = console_.style() == ConsoleStyle::kTerminal;
  const std::chrono::milliseconds period = terminal ? kBarPeriod : kLinePeriod;
  const bool last = report.step >= steps_;
  if (shown_ && !last && now - last_shown_ < period) return;
  shown_ = true;
  last_shown_ = now;
  const ProgressState state{report.step,
                            steps_,
                            report.loss,
                            step_ms_ > 0 ? tokens_per_step_ / step_ms_ * 1000 : 0,
                            static_cast<double>(steps_ - report.step) * step_ms_ / 1000,
                            static_cast<double>(report.step) * epochs_per_step_};
  if (!terminal) {
    console_.Line(PlainText(state));
  } else if (last) {
    console_.ClearBar();
    console_.Line(BarText(state, columns_()));
  } else {
    console_.Bar(BarText(state, columns_()));
  }
}

void Progress::Evaluated(int64_t step, double loss) {
  const std::string steps = std::to_string(steps_);
  console_.Line("step " + Padded(std::to_string(step), steps.size()) + "/" + steps +
                "  held-out loss " + LossText(loss));
}

}  // namespace zerod::train
