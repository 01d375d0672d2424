#pragma once

#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace zerod {

/// A thread that runs what is posted to it, in order. The executor of one local rank (its reduces
/// and updates) or of the node (operations across nodes). Destruction runs what is queued, then
/// joins.
class Lane {
 public:
  explicit Lane(const std::string& name);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void Post(std::function<void()> task);

 private:
  void Run();

  absl::Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace zerod
