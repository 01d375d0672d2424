#include "tests/support/child_process.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/scratch_folder.h"

namespace zerod {
namespace {

[[noreturn]] void Exec(const ChildOptions& options) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int flags = O_WRONLY | O_CREAT | O_TRUNC;
  dup2(open(options.output_path.c_str(), flags, 0600), STDOUT_FILENO);
  dup2(open(options.error_path.c_str(), flags, 0600), STDERR_FILENO);
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& argument : options.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  _exit(127);
}

}  // namespace

ChildProcess::ChildProcess(const ChildOptions& options) : pid_(fork()) {
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) Exec(options);
}

ChildProcess::~ChildProcess() {
  if (ended_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ChildProcess::Signal(int number) const {
  if (!ended_) kill(pid_, number);
}

int ChildProcess::Wait(std::chrono::milliseconds timeout) {
  if (ended_) return exit_code_;
  int status = 0;
  ended_ = WaitUntil(timeout, [&] { return waitpid(pid_, &status, WNOHANG) == pid_; });
  if (!ended_) return -1;
  exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return exit_code_;
}

ChildResult RunChild(ChildOptions options, std::chrono::milliseconds timeout) {
  const ScratchFolder folder;
  options.output_path = folder.File("out");
  options.error_path = folder.File("err");
  ChildResult result;
  {
    ChildProcess child(options);
    result.exit_code = child.Wait(timeout);
  }
  result.output = ReadWholeFile(options.output_path);
  result.error = ReadWholeFile(options.error_path);
  return result;
}

std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace zerod
