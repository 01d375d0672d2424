#include "server/engine/peer_store.h"

#include "absl/time/time.h"

namespace zerod {

void PeerStore::Set(const std::string& key, const std::string& value) {
  Add({key, value});
  link_.Broadcast({epoch_, StoreEntry{key, value}});
}

void PeerStore::Add(const StoreEntry& entry) {
  absl::MutexLock lock(&mutex_);
  entries_[entry.key] = entry.value;
}

void PeerStore::Abort(const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  abort_reason_ = reason;
}

std::string PeerStore::Get(const std::string& key, std::chrono::milliseconds timeout) {
  absl::MutexLock lock(&mutex_);
  auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return entries_.contains(key) || !abort_reason_.empty();
  };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&ready), absl::FromChrono(timeout))) {
    throw Error(ErrorCode::kDeadlineExceeded,
                Concat("no node has set '", key, "' within ", timeout.count(), " ms"));
  }
  if (!abort_reason_.empty()) throw Error(ErrorCode::kAborted, abort_reason_);
  return entries_[key];
}

}  // namespace zerod
