#pragma once

#include <chrono>
#include <thread>

namespace zerod {

template <typename Ready>
bool WaitUntil(std::chrono::milliseconds timeout, Ready ready) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!ready()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace zerod
