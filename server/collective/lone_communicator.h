#pragma once

#include <atomic>
#include <string>

#include "proto/contract/error.h"
#include "server/collective/communicator.h"

namespace zerod {

/// The communicator of a group of one node: there is nobody to exchange anything with.
class LoneCommunicator final : public Communicator {
 public:
  explicit LoneCommunicator(const CommunicatorOptions& options) : name_(options.name) {}

  void Exchange(std::span<const SendSegment> sends, std::span<const ReceiveSegment> receives,
                std::chrono::milliseconds) override {
    ZEROD_CHECK(sends.empty() && receives.empty(), "a lone node exchanges ", sends.size(), " + ",
                receives.size(), " segments");
    if (aborted_) {
      throw Error(ErrorCode::kAborted, Concat("communicator ", name_, " was aborted"));
    }
  }
  void Abort() override { aborted_ = true; }
  const TransportCounters& counters() const override { return counters_; }

 private:
  const std::string name_;
  std::atomic<bool> aborted_{false};
  TransportCounters counters_;
};

}  // namespace zerod
