#pragma once

#include <exception>
#include <new>
#include <utility>

#include "proto/contract/error.h"
#include "server/engine/group.h"

namespace zerod {

/// What is told to others of an exception that wasn't expected to be anything else than an Error.
inline Error AsError(const std::exception& exception) {
  if (const auto* error = dynamic_cast<const Error*>(&exception)) return *error;
  if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr) {
    return Error(ErrorCode::kResourceExhausted, "zerod is out of memory");
  }
  return Error(ErrorCode::kInternal, exception.what());
}

template <typename Work>
bool Group::Guarded(Work&& work) {
  try {
    std::forward<Work>(work)();
    return true;
  } catch (const std::exception& exception) {
    const Error error = AsError(exception);
    absl::MutexLock lock(&mutex_);
    // To a worker a lost peer must not look like a daemon that it can't reach.
    Break(error.code() == ErrorCode::kUnavailable ? Error(ErrorCode::kAborted, error.what())
                                                  : error);
    return false;
  }
}

}  // namespace zerod
