#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/contract/operation.h"

namespace zerod {

/// Compares what the ranks of a group submit, ticket by ticket, and knows who is late. Pure: time
/// is a parameter, nothing is sent. Not thread-safe.
class OrderCheck {
 public:
  using Clock = std::chrono::steady_clock;
  using Describe = std::function<std::string(const Fingerprint&)>;

  /// `describe` puts an operation into words, e.g. "gather of layer 'block3'".
  OrderCheck(int world, Describe describe);

  /// A rank's (or a node's first) fingerprint of a ticket. Returns what differs, naming ranks,
  /// ticket and both operations, or the first argument in which they differ, when another rank did
  /// something else there.
  std::optional<std::string> Record(int rank, const Fingerprint& fingerprint,
                                    Clock::time_point now);

  /// The rank has submitted everything up to `ticket`, compared on its own node.
  void Advance(int rank, uint64_t ticket);

  uint64_t last_ticket(int rank) const { return last_tickets_[rank]; }
  /// Up to here all ranks have submitted the same.
  uint64_t compared() const { return compared_; }

  /// The watcher itself stood still for so long: what it saw before counts from now on.
  void Excuse(Clock::duration pause);

  struct Late {
    std::vector<int> ranks;  ///< that haven't submitted `ticket`
    int waiting_rank = 0;    ///< the first that did
    uint64_t ticket = 0;
    std::string operation;  ///< in words
    Clock::duration waited{};
  };
  /// The oldest ticket that somebody submitted and somebody else didn't, if any.
  std::optional<Late> FindLate(Clock::time_point now) const;

 private:
  struct Entry {
    Fingerprint fingerprint;
    int rank = 0;
    Clock::time_point seen;
  };
  Describe describe_;
  std::vector<uint64_t> last_tickets_;  // by rank
  uint64_t compared_ = 0;
  std::map<uint64_t, Entry> entries_;  // of tickets above compared_
};

}  // namespace zerod
