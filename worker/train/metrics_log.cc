#include "worker/train/metrics_log.h"

#include <cerrno>
#include <cmath>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "proto/contract/error.h"

namespace zerod::train {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string StepLine(const StepReport& report) {
  Json line = {{"step", report.step},
               {"loss", report.loss},
               {"grad_norm", report.grad_norm},
               {"tokens_per_s", report.tokens_per_s},
               {"step_ms", report.step_ms}};
  if (report.skipped) line["skipped"] = true;
  return line.dump() + "\n";
}

std::string EvalLine(int64_t step, double eval_loss) {
  return Json{{"step", step}, {"eval_loss", eval_loss}, {"perplexity", std::exp(eval_loss)}}
             .dump() +
         "\n";
}

MetricsLog::MetricsLog(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  file_ = FileDescriptor(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file_.valid()) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("cannot open the log ", path_, ": ", ErrnoText(errno)));
  }
}

void MetricsLog::Clear() {
  // What can't be emptied, such as a pipe, has nothing in it to be mistaken for this job's.
  if (file_.valid() && ftruncate(file_.get(), 0) != 0 && errno != EINVAL) {
    throw Error(ErrorCode::kInternal,
                Concat("cannot empty the log ", path_, ": ", ErrnoText(errno)));
  }
}

void MetricsLog::Write(const std::string& line) {
  if (!file_.valid()) return;
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = write(file_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      throw Error(ErrorCode::kInternal,
                  Concat("cannot write to the log ", path_, ": ", ErrnoText(errno)));
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace zerod::train
