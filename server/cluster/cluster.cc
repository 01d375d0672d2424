#include "server/cluster/cluster.h"

#include <random>
#include <utility>

#include "proto/contract/error.h"
#include "proto/contract/operation.h"
#include "proto/peer.grpc.pb.h"
#include "server/cluster/called_link.h"
#include "server/cluster/host_port.h"
#include "server/cluster/peer_messages.h"

namespace zerod {
namespace {

constexpr std::chrono::seconds kFinishTime{1};

uint64_t RandomIncarnation() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random() | 1;
}

int NodeCountOf(const ClusterOptions& options) {
  const int node_count = options.peers.empty() ? 1 : static_cast<int>(options.peers.size());
  if (options.node < 0 || options.node >= node_count) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("this is node ", options.node, ", but the peer list has ", node_count,
                       node_count == 1 ? " entry" : " entries", "; check --node and --peers"));
  }
  return node_count;
}

std::string DataHostOf(const ClusterOptions& options) {
  for (const std::string& peer : options.peers) ParseHostPort(peer);
  return options.peers.empty() ? "127.0.0.1" : ParseHostPort(options.peers[options.node]).host;
}

/// Answers a call before Start() or after Stop().
class Unavailable final : public CalledLink::Reactor {
 public:
  Unavailable() { Finish({grpc::StatusCode::UNAVAILABLE, "it isn't ready for peers"}); }
  void OnDone() override { delete this; }
};

}  // namespace

class Cluster::PeerService final : public v1::Peer::CallbackService {
 public:
  explicit PeerService(Cluster& cluster) : cluster_(cluster) {}

  CalledLink::Reactor* Link(grpc::CallbackServerContext* context) override {
    LinkEvents& events = cluster_;
    auto link = std::make_shared<CalledLink>(events, *context);
    if (!cluster_.Adopt(link)) return new Unavailable;
    return link->Serve();
  }

 private:
  Cluster& cluster_;
};

Cluster::Cluster(ClusterOptions options, PeerEvents& events)
    : options_(std::move(options)),
      node_count_(NodeCountOf(options_)),
      incarnation_(RandomIncarnation()),
      data_host_(DataHostOf(options_)),
      events_(events),
      service_(std::make_unique<PeerService>(*this)),
      peers_(node_count_) {
  ZEROD_CHECK(options_.ranks > 0, "a node with ", options_.ranks, " ranks");
  for (int node = 0; node < node_count_; ++node) {
    if (!options_.peers.empty()) peers_[node].address = options_.peers[node];
    peers_[node].note = node < options_.node ? "it hasn't called yet" : "it wasn't called yet";
  }
  Peer& own = peers_[options_.node];
  own.connected = true;
  own.ranks = options_.ranks;
  own.incarnation = incarnation_;
  own.note.clear();
}

Cluster::~Cluster() { Stop(); }

grpc::Service* Cluster::service() { return service_.get(); }

void Cluster::Start() {
  std::lock_guard lock(mutex_);
  ZEROD_CHECK(!started_, "a cluster starts once");
  started_ = true;
  thread_ = std::thread([this] { Run(); });
}

void Cluster::Stop() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  const std::set<std::shared_ptr<Link>> links = links_;
  changed_.notify_all();
  lock.unlock();
  for (const auto& link : links) link->Finish();
  lock.lock();
  changed_.wait_for(lock, kFinishTime, [this] { return links_.empty(); });
  lock.unlock();
  for (const auto& link : links) link->Close(grpc::StatusCode::CANCELLED, "this daemon stops");
  if (thread_.joinable()) thread_.join();
}

void Cluster::Send(int node, const PeerMessage& message) {
  ZEROD_CHECK(0 <= node && node < node_count_ && node != options_.node, "node ", options_.node,
              " of ", node_count_, " sends to node ", node);
  if (const auto link = LinkTo(node)) {
    link->Send(std::make_shared<const v1::PeerMessage>(ToMessage(message)));
  }
}

void Cluster::Broadcast(const PeerMessage& message) {
  const auto shared = std::make_shared<const v1::PeerMessage>(ToMessage(message));
  for (int node = 0; node < node_count_; ++node) {
    if (node == options_.node) continue;
    if (const auto link = LinkTo(node)) link->Send(shared);
  }
}

std::shared_ptr<Link> Cluster::LinkTo(int node) const {
  std::lock_guard lock(mutex_);
  return peers_[node].connected ? peers_[node].link : nullptr;
}

std::string Cluster::WaitingFor() const {
  std::string text;
  for (const PeerState& state : States()) {
    if (state.connected) continue;
    if (!text.empty()) text += "; ";
    text += Concat("node ", state.node, " at ", state.address, ": ", state.note);
  }
  return text;
}

std::vector<PeerState> Cluster::States() const {
  std::lock_guard lock(mutex_);
  std::vector<PeerState> states;
  for (int node = 0; node < node_count_; ++node) {
    const Peer& peer = peers_[node];
    states.push_back({.node = node,
                      .address = peer.address,
                      .connected = peer.connected,
                      .ranks = peer.ranks,
                      .note = peer.note});
  }
  return states;
}

std::shared_ptr<const v1::PeerMessage> Cluster::HelloTo(int node) const {
  auto message = std::make_shared<v1::PeerMessage>();
  v1::PeerHello& hello = *message->mutable_hello();
  hello.set_protocol_version(kProtocolVersion);
  hello.set_node(options_.node);
  hello.set_node_count(node_count_);
  hello.set_ranks(options_.ranks);
  hello.set_version(options_.version);
  hello.set_incarnation(incarnation_);
  hello.set_expected_node(node);
  return message;
}

bool Cluster::Adopt(const std::shared_ptr<Link>& link) {
  std::lock_guard lock(mutex_);
  if (!started_ || stopping_) return false;
  links_.insert(link);
  changed_.notify_all();
  return true;
}

void Cluster::OnLinkMessage(const std::shared_ptr<Link>& link, v1::PeerMessage message) {
  std::lock_guard lock(mutex_);
  queue_.push_back({.link = link, .message = std::move(message), .reason = {}, .refused = false});
  changed_.notify_all();
}

void Cluster::OnLinkEnd(std::shared_ptr<Link> link, const std::string& reason, bool refused) {
  std::lock_guard lock(mutex_);
  links_.erase(link);
  queue_.push_back({.link = std::move(link), .message = {}, .reason = reason, .refused = refused});
  changed_.notify_all();
}

}  // namespace zerod
