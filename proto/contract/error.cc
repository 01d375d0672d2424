#include "proto/contract/error.h"

#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "proto/contract/printable_text.h"

namespace zerod {

Error::Error(ErrorCode code, const std::string& message)
    : std::runtime_error(OneLineText(message)), code_(code) {}

const char* ErrorCodeName(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kAlreadyExists:
      return "already exists";
    case ErrorCode::kFailedPrecondition:
      return "failed precondition";
    case ErrorCode::kResourceExhausted:
      return "resource exhausted";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kDeadlineExceeded:
      return "deadline exceeded";
    case ErrorCode::kAborted:
      return "aborted";
    case ErrorCode::kDataLoss:
      return "data loss";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

int ExitCode(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return 2;
    case ErrorCode::kNotFound:
      return 5;
    case ErrorCode::kAlreadyExists:
      return 1;
    case ErrorCode::kFailedPrecondition:
      return 5;
    case ErrorCode::kResourceExhausted:
      return 2;
    case ErrorCode::kUnavailable:
      return 3;
    case ErrorCode::kDeadlineExceeded:
      return 4;
    case ErrorCode::kAborted:
      return 4;
    case ErrorCode::kDataLoss:
      return 5;
    case ErrorCode::kInternal:
      return 1;
  }
  return 1;
}

std::string ErrnoText(int error_number) { return std::generic_category().message(error_number); }

namespace internal {

void CheckFailed(const char* file, int line, const char* condition,
                 const std::string& message) noexcept {
  std::fprintf(stderr, "%s:%d: check failed: %s: %s\n", file, line, condition, message.c_str());
  std::abort();
}

}  // namespace internal
}  // namespace zerod
