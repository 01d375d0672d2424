#include "tests/server/engine/linked_engines.h"

#include <algorithm>
#include <string>

namespace zerod::testing {

class LinkedEngines::Link final : public PeerLink {
 public:
  Link(LinkedEngines& engines, int node, int node_count)
      : engines_(engines), node_(node), node_count_(node_count) {}
  void Send(int node, const PeerMessage& message) override { engines_.Send(node_, node, message); }
  void Broadcast(const PeerMessage& message) override {
    for (int node = 0; node < node_count_; ++node) {
      if (node != node_) Send(node, message);
    }
  }
  std::string WaitingFor() const override { return ""; }
  std::string DataHost() const override { return "127.0.0.1"; }

 private:
  LinkedEngines& engines_;
  const int node_;
  const int node_count_;
};

LinkedEngines::LinkedEngines(const std::vector<int>& ranks_per_node, EngineOptions options,
                             const std::vector<std::vector<std::string>>& model_roots) {
  const int count = static_cast<int>(ranks_per_node.size());
  options.node_count = count;
  for (int node = 0; node < count; ++node) {
    options.node = node;
    options.ranks = ranks_per_node[node];
    if (!model_roots.empty()) options.model_roots = model_roots[node];
    nodes_.push_back(std::make_unique<Node>());
    nodes_.back()->link = std::make_unique<Link>(*this, node, count);
    nodes_.back()->engine = std::make_unique<Engine>(options);
    nodes_.back()->engine->SetPeerLink(nodes_.back()->link.get());
  }
  for (int node = 0; node < count; ++node) {
    nodes_[node]->thread = std::thread([this, node] { Run(node); });
    Post(node, [this, node, ranks_per_node] { engine(node).OnMembership(ranks_per_node); });
  }
}

LinkedEngines::~LinkedEngines() {
  for (auto& node : nodes_) node->engine->Stop("the test is over");
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (auto& node : nodes_) node->thread.join();
  for (auto& node : nodes_) node->engine.reset();
}

void LinkedEngines::Post(int node, std::function<void()> event) {
  const std::lock_guard lock(mutex_);
  nodes_[node]->inbox.push_back(std::move(event));
  changed_.notify_all();
}

void LinkedEngines::Send(int from, int to, const PeerMessage& message) {
  {
    const std::lock_guard lock(mutex_);
    const std::pair<int, int> link = std::minmax(from, to);
    if (std::ranges::find(cuts_, link) != cuts_.end()) return;
    if (drops_ && drops_(from, to, message)) return;
  }
  Inject(from, to, message);
}

void LinkedEngines::Inject(int from, int node, const PeerMessage& message) {
  Post(node, [this, from, node, message] { engine(node).OnPeerMessage(from, message); });
}

void LinkedEngines::DropIf(std::function<bool(int from, int to, const PeerMessage&)> drops) {
  const std::lock_guard lock(mutex_);
  drops_ = std::move(drops);
}

void LinkedEngines::Cut(int node, int other) {
  {
    const std::lock_guard lock(mutex_);
    cuts_.emplace_back(std::minmax(node, other));
  }
  Post(node, [this, node, other] { engine(node).OnPeerLost(other, "the test cut the link"); });
  Post(other, [this, node, other] { engine(other).OnPeerLost(node, "the test cut the link"); });
}

void LinkedEngines::Run(int node) {
  for (;;) {
    std::function<void()> event;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !nodes_[node]->inbox.empty(); });
      if (nodes_[node]->inbox.empty()) return;
      event = std::move(nodes_[node]->inbox.front());
      nodes_[node]->inbox.pop_front();
    }
    event();
  }
}

}  // namespace zerod::testing
