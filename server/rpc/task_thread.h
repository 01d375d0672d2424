#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace zerod {

/// Runs tasks one after another on a thread of its own, so that a slow one holds up no gRPC thread.
/// The destructor runs what is queued, then joins.
class TaskThread {
 public:
  TaskThread();
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  /// Returns false, without running it, when kTasksMax tasks wait already. Tasks must not throw.
  bool Post(std::function<void()> task);

  static constexpr size_t kTasksMax = 256;

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace zerod
