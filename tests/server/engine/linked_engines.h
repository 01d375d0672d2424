#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/engine/engine.h"

namespace zerod::testing {

/// Several engines in one process. Messages between two nodes arrive in order, from one thread per
/// receiving node; what they carry between communicators is real.
class LinkedEngines {
 public:
  /// `model_roots` are by node; without, those of `options`.
  explicit LinkedEngines(const std::vector<int>& ranks_per_node,
                         EngineOptions options = EngineOptions(),
                         const std::vector<std::vector<std::string>>& model_roots = {});
  ~LinkedEngines();

  Engine& engine(int node) { return *nodes_[node]->engine; }
  /// Each of the two loses the other; nothing passes between them any more.
  void Cut(int node, int other);
  /// Delivers a message to `node` as if `from` had sent it.
  void Inject(int from, int node, const PeerMessage& message);
  /// Drops messages for which this is true; called from many threads.
  void DropIf(std::function<bool(int from, int to, const PeerMessage&)> drops);

 private:
  class Link;
  struct Node {
    std::unique_ptr<Link> link;
    std::unique_ptr<Engine> engine;
    std::deque<std::function<void()>> inbox;  // under mutex_
    std::thread thread;
  };
  void Post(int node, std::function<void()> event);
  void Send(int from, int to, const PeerMessage& message);
  void Run(int node);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::pair<int, int>> cuts_;
  std::function<bool(int, int, const PeerMessage&)> drops_;
  bool stopping_ = false;
};

}  // namespace zerod::testing
