#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

namespace zerod {

/// How a program is started. Its standard output and error go to a file each.
struct ChildOptions {
  std::vector<std::string> arguments;              ///< the program's path first
  std::map<std::string, std::string> environment;  ///< on top of this process's
  std::string output_path = "/dev/null";
  std::string error_path = "/dev/null";
};

/// A program that this test started; killed when destroyed. Dies with the test process.
class ChildProcess {
 public:
  explicit ChildProcess(const ChildOptions& options);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int number) const;
  /// Exit code, 128+n for a signal, -1 if it still runs when the time is over.
  int Wait(std::chrono::milliseconds timeout);

 private:
  pid_t pid_ = -1;
  int exit_code_ = -1;
  bool ended_ = false;
};

/// Starts a program and waits for its end.
struct ChildResult {
  int exit_code = -1;
  std::string output;
  std::string error;
};
ChildResult RunChild(ChildOptions options, std::chrono::milliseconds timeout);

/// Whole content of a file; empty if there is none.
std::string ReadWholeFile(const std::string& path);

/// Polls until `ready` returns true; false when the time is over.
template <typename Ready>
bool WaitUntil(std::chrono::milliseconds timeout, Ready ready);

}  // namespace zerod

#include "tests/support/wait_until.h"
