#pragma once

#include <exception>
#include <utility>

#include "proto/contract/error.h"
#include "server/engine/group.h"

namespace zerod {

template <typename Work>
void Group::Guarded(Work&& work) {
  try {
    std::forward<Work>(work)();
  } catch (const Error& error) {
    absl::MutexLock lock(&mutex_);
    Abort(error);
  } catch (const std::exception& error) {
    absl::MutexLock lock(&mutex_);
    Abort(Error(ErrorCode::kInternal, error.what()));
  }
}

}  // namespace zerod
