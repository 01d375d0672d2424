#include "worker/train/stop_signals.h"

#include <atomic>
#include <csignal>

#include "proto/contract/error.h"

namespace zerod::train {
namespace {

// A handler can reach nothing but what has static lifetime.
std::atomic<int> noted_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "a handler may not wait");

void SetHandler(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void Note(int signal) {
  noted_signal.store(signal);
  SetHandler(SIG_DFL);
}

}  // namespace

StopSignals::StopSignals() {
  noted_signal.store(0);
  SetHandler(Note);
}

StopSignals::~StopSignals() { SetHandler(SIG_DFL); }

int StopSignals::Noted() const { return noted_signal.load(); }

void AppendStopVotes(int signal, std::vector<double>& values) {
  values.push_back(signal == SIGINT ? 1 : 0);
  values.push_back(signal == SIGTERM ? 1 : 0);
}

int CountStopVotes(const std::vector<double>& values) {
  ZEROD_CHECK(values.size() >= kStopVotes, values.size(), " values");
  if (values[values.size() - 2] > 0) return SIGINT;
  return values.back() > 0 ? SIGTERM : 0;
}

}  // namespace zerod::train
