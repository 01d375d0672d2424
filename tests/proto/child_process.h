#pragma once

#include <functional>

#include <sys/wait.h>
#include <unistd.h>

namespace zerod {

/// A forked copy of the test that runs `body` and ends with its result; reaped when destroyed.
class ChildProcess {
 public:
  explicit ChildProcess(const std::function<int()>& body) : pid_(fork()) {
    if (pid_ == 0) _exit(body());
  }
  ~ChildProcess() { Wait(); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// The result of `body`, or -1 if the child died otherwise.
  int Wait() {
    if (pid_ > 0) {
      int status = 0;
      const bool reaped = waitpid(pid_, &status, 0) == pid_;
      result_ = reaped && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      pid_ = 0;
    }
    return result_;
  }

 private:
  pid_t pid_;
  int result_ = -1;
};

}  // namespace zerod
