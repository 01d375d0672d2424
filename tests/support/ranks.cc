#include "tests/support/ranks.h"

#include <cstring>
#include <stdexcept>

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace zerod {
namespace {

void WriteAll(int fd, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = write(fd, at, bytes);
    if (done <= 0) _exit(99);
    at += done;
    bytes -= done;
  }
}

/// Wire form of an outcome: ok, error code, length of the text, text, values.
[[noreturn]] void RunChildBody(int fd, const SessionOptions& options, const RankBody& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int32_t head[3] = {1, -1, 0};
  std::string error;
  std::vector<double> values;
  try {
    values = body(options);
  } catch (const Error& caught) {
    head[0] = 0;
    head[1] = static_cast<int32_t>(caught.code());
    error = caught.what();
  } catch (const std::exception& caught) {
    head[0] = 0;
    error = caught.what();
  }
  head[2] = static_cast<int32_t>(error.size());
  WriteAll(fd, head, sizeof(head));
  WriteAll(fd, error.data(), error.size());
  WriteAll(fd, values.data(), values.size() * sizeof(double));
  _exit(0);  // no destructors: gtest and its listeners belong to the parent
}

}  // namespace

RankProcess::RankProcess(const SessionOptions& options, const RankBody& body)
    : began_(std::chrono::steady_clock::now()) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    close(ends[0]);
    RunChildBody(ends[1], options, body);
  }
  close(ends[1]);
  pipe_ = ends[0];
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pipe_(std::exchange(other.pipe_, -1)),
      began_(other.began_) {}

RankProcess::~RankProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (pipe_ >= 0) close(pipe_);
}

void RankProcess::Signal(int number) const {
  if (pid_ > 0) kill(pid_, number);
}

RankOutcome RankProcess::Wait(std::chrono::milliseconds timeout) {
  RankOutcome outcome;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::string bytes;
  bool timed_out = false;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd entry{pipe_, POLLIN, 0};
    if (left.count() <= 0 || poll(&entry, 1, static_cast<int>(left.count())) == 0) {
      timed_out = true;
      kill(pid_, SIGKILL);
      break;
    }
    char buffer[65536];
    const ssize_t got = read(pipe_, buffer, sizeof(buffer));
    if (got <= 0) break;
    bytes.append(buffer, got);
  }
  outcome.took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began_);
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  outcome.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  int32_t head[3];
  if (timed_out || bytes.size() < sizeof(head)) {
    outcome.error = timed_out ? "timed out" : Concat("ended with ", outcome.exit_code);
    return outcome;
  }
  std::memcpy(head, bytes.data(), sizeof(head));
  outcome.ok = head[0] == 1;
  outcome.error_code = head[1];
  outcome.error = bytes.substr(sizeof(head), head[2]);
  const size_t begin = sizeof(head) + head[2];
  outcome.values.resize((bytes.size() - begin) / sizeof(double));
  if (!outcome.values.empty()) {
    std::memcpy(outcome.values.data(), &bytes[begin], outcome.values.size() * sizeof(double));
  }
  return outcome;
}

std::vector<RankOutcome> RunRanks(const Daemons& daemons, const RankBody& body,
                                  std::chrono::seconds timeout) {
  std::vector<RankProcess> processes;
  processes.reserve(daemons.World());
  for (int rank = 0; rank < daemons.World(); ++rank) {
    processes.emplace_back(daemons.OptionsOf(rank), body);
  }
  std::vector<RankOutcome> outcomes;
  outcomes.reserve(processes.size());
  for (RankProcess& process : processes) outcomes.push_back(process.Wait(timeout));
  return outcomes;
}

std::vector<std::vector<double>> RunRanksOrThrow(const Daemons& daemons, const RankBody& body,
                                                 std::chrono::seconds timeout) {
  std::vector<std::vector<double>> values;
  const std::vector<RankOutcome> outcomes = RunRanks(daemons, body, timeout);
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (!outcomes[rank].ok) {
      throw std::runtime_error(Concat("rank ", rank, ": ", outcomes[rank].error));
    }
    values.push_back(outcomes[rank].values);
  }
  return values;
}

}  // namespace zerod
