#pragma once

#include <cstdint>
#include <string>

#include "proto/contract/descriptor.h"
#include "worker/train/step_report.h"

namespace zerod::train {

/// {"step", "loss", "grad_norm", "tokens_per_s", "step_ms"} and a line's end; "skipped": true after
/// a skipped step only. Numbers that aren't finite are null, also the loss of a step without any
/// position that counts.
std::string StepLine(const StepReport& report);

/// {"step", "eval_loss", "perplexity"} and a line's end.
std::string EvalLine(int64_t step, double eval_loss);

/// A file of JSON lines, each written at once, so that a reader never waits for a buffer.
/// Errors: Error(kInvalidArgument) if it can't be opened, kInternal if it can't be written.
class MetricsLog {
 public:
  /// Opens or makes the file; what is in it stays. Without a path nothing is ever written.
  explicit MetricsLog(std::string path);

  /// Empties it: a new job begins.
  void Clear();
  void Write(const std::string& line);

 private:
  std::string path_;
  FileDescriptor file_;
};

}  // namespace zerod::train
