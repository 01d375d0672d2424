#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace zerod {

/// What kind of thing failed. Maps one to one to gRPC status codes (proto/contract/status.h) and to
/// the exit codes of all programs (ExitCode below).
enum class ErrorCode {
  kInvalidArgument,     // a request, option or file content is wrong
  kNotFound,            // no such job, layer, file
  kAlreadyExists,       // a rank or job is taken
  kFailedPrecondition,  // right request at the wrong time: other model, other world, attached job
  kResourceExhausted,   // window, memory or descriptor limit
  kUnavailable,         // nobody answers: no daemon, peer not reachable
  kDeadlineExceeded,    // somebody was too late
  kAborted,             // the epoch ended: peer lost, order check, dropped step
  kDataLoss,            // corrupt file or message
  kInternal,            // the operating system or a library failed unexpectedly
};

/// The one exception of the project: the outside world failed. `what()` says what was wrong, where
/// (rank, layer, file) and what to do, in one line: what a terminal could take amiss, in a name
/// that comes from a file for instance, is shown as OneLineText shows it. Copyable, thread-safe to
/// read.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message);
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// Name of a code for messages and logs, e.g. "invalid argument".
const char* ErrorCodeName(ErrorCode code) noexcept;

/// Exit code of a program that ends with this error: 1 error, 2 usage or configuration, 3 cannot
/// connect, 4 unhealthy or peer lost, 5 bad model or data.
int ExitCode(ErrorCode code) noexcept;

/// Joins the printed arguments. Small and allocation-happy: for messages only.
template <typename... Args>
std::string Concat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

/// Text of an errno value.
std::string ErrnoText(int error_number);

namespace internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& message) noexcept;
}  // namespace internal

}  // namespace zerod

/// A broken invariant is a bug of ours: prints file, line, condition and message, then aborts.
#define ZEROD_CHECK(condition, ...)                                  \
  do {                                                               \
    if (!(condition)) [[unlikely]]                                   \
      ::zerod::internal::CheckFailed(__FILE__, __LINE__, #condition, \
                                     ::zerod::Concat(__VA_ARGS__));  \
  } while (false)
