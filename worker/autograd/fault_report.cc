#include "worker/autograd/fault_report.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>

#include <unistd.h>

namespace zerod {
namespace {

constexpr int kMaxRanges = 4096;
constexpr size_t kMaxLabelBytes = 64;

// A signal handler can only reach what is static. `begin` is written last and cleared first.
struct WatchedRange {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  char label[kMaxLabelBytes];
};

WatchedRange watched[kMaxRanges];
std::mutex watched_mutex;  // of those that write what the handler reads
char rank_text[16];
struct sigaction former_action;

void WriteText(const char* text) {
  // Nothing can be done about a failed write here.
  if (write(STDERR_FILENO, text, strlen(text)) < 0) return;
}

void OnFault(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const WatchedRange& range : watched) {
    const uintptr_t begin = range.begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= range.end.load()) continue;
    WriteText("zerod: rank ");
    WriteText(rank_text);
    WriteText(": the parameters of layer '");
    WriteText(range.label);
    WriteText("' were used while the layer was released; use them inside a call of the layer\n");
    _exit(kReleasedReadExitCode);
  }
  if ((former_action.sa_flags & SA_SIGINFO) != 0 && former_action.sa_sigaction != nullptr) {
    former_action.sa_sigaction(signal, info, context);
    return;
  }
  // The instruction runs again and faults under the former action.
  sigaction(SIGSEGV, &former_action, nullptr);
}

}  // namespace

void InstallFaultReport(int rank) {
  const std::lock_guard<std::mutex> lock(watched_mutex);
  const std::string text = std::to_string(rank);
  rank_text[text.copy(rank_text, sizeof(rank_text) - 1)] = '\0';
  struct sigaction current = {};
  sigaction(SIGSEGV, nullptr, &current);
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == OnFault) return;
  struct sigaction action = {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &former_action);
}

int WatchRange(const void* begin, size_t bytes, const std::string& label) {
  const std::lock_guard<std::mutex> lock(watched_mutex);
  for (int i = 0; i < kMaxRanges; ++i) {
    WatchedRange& range = watched[i];
    if (range.begin.load() != 0) continue;
    const size_t length = label.copy(range.label, kMaxLabelBytes - 1);
    range.label[length] = '\0';
    range.end.store(reinterpret_cast<uintptr_t>(begin) + bytes);
    range.begin.store(reinterpret_cast<uintptr_t>(begin), std::memory_order_release);
    return i;
  }
  return -1;
}

void UnwatchRange(int range) {
  if (range < 0) return;
  const std::lock_guard<std::mutex> lock(watched_mutex);
  watched[range].begin.store(0);
}

}  // namespace zerod
