#include "proto/contract/control_page.h"

#include <climits>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace zerod {

void Ring(ControlPage& page) {
  page.doorbell.fetch_add(1, std::memory_order_seq_cst);
  // No FUTEX_PRIVATE_FLAG: the waiter is another process.
  syscall(SYS_futex, &page.doorbell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Complete(ControlPage& page, Queue queue, uint64_t ticket) {
  page.completed[static_cast<int>(queue)].store(ticket, std::memory_order_release);
  Ring(page);
}

void Abort(ControlPage& page) {
  page.aborted.store(1, std::memory_order_release);
  Ring(page);
}

WaitResult WaitFor(ControlPage& page, Queue queue, uint64_t ticket,
                   std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const uint32_t seen = page.doorbell.load(std::memory_order_seq_cst);
    const auto& counter = page.completed[static_cast<int>(queue)];
    if (counter.load(std::memory_order_acquire) >= ticket) return WaitResult::kDone;
    if (page.aborted.load(std::memory_order_acquire) != 0) return WaitResult::kAborted;
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= left.zero()) return WaitResult::kTimedOut;
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    timespec timeout{static_cast<time_t>(nanoseconds / 1'000'000'000),
                     static_cast<long>(nanoseconds % 1'000'000'000)};
    // Returns at once if the doorbell has moved; EINTR and time-outs are handled by the loop.
    syscall(SYS_futex, &page.doorbell, FUTEX_WAIT, seen, &timeout, nullptr, 0);
  }
}

}  // namespace zerod
