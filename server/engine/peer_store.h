#pragma once

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/collective/communicator.h"
#include "server/engine/peer_link.h"

namespace zerod {

/// The rendezvous store of one epoch: entries travel as peer messages. Thread-safe.
class PeerStore : public RendezvousStore {
 public:
  PeerStore(uint64_t epoch, PeerLink& link) : epoch_(epoch), link_(link) {}

  void Set(const std::string& key, const std::string& value) override;
  std::string Get(const std::string& key, std::chrono::milliseconds timeout) override;
  /// An entry that another node has set.
  void Add(const StoreEntry& entry);
  /// Ends pending and future Gets.
  void Abort(const std::string& reason);

 private:
  const uint64_t epoch_;
  PeerLink& link_;
  absl::Mutex mutex_;
  std::map<std::string, std::string> entries_ ABSL_GUARDED_BY(mutex_);
  std::string abort_reason_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace zerod
