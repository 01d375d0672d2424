// The thread of a cluster: calls peers, checks who answers, and tells PeerEvents.

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "proto/contract/error.h"
#include "server/cluster/caller_link.h"
#include "server/cluster/cluster.h"
#include "server/cluster/handshake.h"
#include "server/cluster/peer_messages.h"

namespace zerod {
namespace {

// How often time-outs are looked at while a node is missing.
constexpr std::chrono::milliseconds kTick{50};
constexpr size_t kRefusalsMax = 64;

}  // namespace

void Cluster::Run() {
  AnnounceMembershipIfComplete();
  std::unique_lock lock(mutex_);
  while (!(stopping_ && links_.empty() && queue_.empty())) {
    if (!queue_.empty()) {
      Event event = std::move(queue_.front());
      queue_.pop_front();
      const bool stopping = stopping_;
      lock.unlock();
      if (!stopping)
        Handle(event);
      else if (event.message)
        event.link->ReadNext();  // until its end
      event = {};                // the link may go here, not under the lock
      lock.lock();
      continue;
    }
    if (!stopping_) {
      lock.unlock();
      DropSilentLinks();
      CallDuePeers();
      lock.lock();
    }
    if (!queue_.empty()) continue;
    const bool complete =
        std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.connected; });
    const bool idle = complete && links_.size() + 1 == peers_.size();
    if (idle && !stopping_)
      changed_.wait(lock);
    else
      changed_.wait_for(lock, kTick);
  }
}

void Cluster::Handle(Event& event) {
  if (event.message)
    HandleMessage(event.link, *event.message);
  else
    HandleEnd(event);
}

std::optional<int> Cluster::NodeOf(const Link& link) const {
  for (int node = 0; node < node_count_; ++node) {
    if (peers_[node].link.get() == &link) return node;
  }
  return std::nullopt;
}

void Cluster::HandleMessage(const std::shared_ptr<Link>& link, const v1::PeerMessage& message) {
  const std::optional<int> node = NodeOf(*link);
  if (!node || !peers_[*node].connected) {
    if (message.has_hello())
      HandleHello(link, message.hello());
    else
      link->Close(grpc::StatusCode::INVALID_ARGUMENT, "its first message was no hello");
    return;
  }
  std::optional<PeerMessage> received;
  try {
    received = FromMessage(message);
  } catch (const Error& error) {
    link->Close(grpc::StatusCode::INVALID_ARGUMENT,
                Concat("it sent what can't be read: ", error.what()));
    return;
  }
  events_.OnPeerMessage(*node, *received);
  link->ReadNext();
}

void Cluster::HandleHello(const std::shared_ptr<Link>& link, const v1::PeerHello& hello) {
  if (const auto refusal = RefusalOf(*link, hello)) {
    if (!link->called_node) LogRefusal(*refusal);
    link->Close(grpc::StatusCode::FAILED_PRECONDITION, *refusal);
    return;
  }
  if (!link->called_node) link->Send(HelloTo(hello.node()));
  Connect(link, hello);
  AnnounceMembershipIfComplete();
  link->ReadNext();
}

std::optional<std::string> Cluster::RefusalOf(const Link& link, const v1::PeerHello& hello) const {
  const auto own = HelloTo(link.called_node.value_or(hello.node()));
  if (link.called_node) return Mismatch(own->hello(), hello);
  if (auto mismatch = Mismatch(hello, own->hello())) return mismatch;
  const Peer& peer = peers_[hello.node()];
  if (peer.connected && peer.incarnation != hello.incarnation()) {
    return Concat(
        "node ", options_.node, " already has a connection to another node ", hello.node(),
        "; if that isn't the one before a restart, two daemons have --node ", hello.node());
  }
  return std::nullopt;
}

void Cluster::Connect(const std::shared_ptr<Link>& link, const v1::PeerHello& hello) {
  Peer& peer = peers_[hello.node()];
  if (peer.connected) {
    // The same process calls again: it has seen the old link break before this end did.
    peer.link->Close(grpc::StatusCode::CANCELLED, "it connected again");
    HandleEnd({.link = peer.link, .message = {}, .reason = "it connected again", .refused = false});
  }
  {
    std::lock_guard lock(mutex_);
    peer.link = link;
    peer.connected = true;
    peer.ranks = hello.ranks();
    peer.incarnation = hello.incarnation();
    peer.note.clear();
    peer.refusal.clear();
    peer.report_at = {};
  }
  spdlog::info(Concat("node ", hello.node(), " at ", peer.address, " is connected: ranks ",
                      hello.ranks(), ", zerod ", hello.version()));
}

void Cluster::HandleEnd(const Event& event) {
  const std::optional<int> node = NodeOf(*event.link);
  if (!node) return;  // refused, or replaced by a newer one
  Peer& peer = peers_[*node];
  const bool was_connected = peer.connected;
  {
    std::lock_guard lock(mutex_);
    peer.link = nullptr;
    peer.connected = false;
    peer.note = event.reason;
    peer.call_at = Clock::now() + options_.retry;
  }
  if (was_connected) {
    spdlog::warn(Concat("node ", *node, " at ", peer.address, " is lost: ", event.reason));
    events_.OnPeerLost(*node, event.reason);
  } else {
    NoteUnreachable(*node, event.reason, event.refused);
  }
}

void Cluster::NoteUnreachable(int node, const std::string& reason, bool refused) {
  Peer& peer = peers_[node];
  if (refused) {
    if (peer.refusal == reason) return;
    peer.refusal = reason;
    spdlog::error(Concat("node ", node, " at ", peer.address, " is refused: ", reason));
    return;
  }
  const auto now = Clock::now();
  if (now < peer.report_at) return;
  peer.report_at = now + options_.report_period;
  spdlog::warn(Concat("waiting for node ", node, " at ", peer.address, ": ", reason));
}

void Cluster::LogRefusal(const std::string& reason) {
  if (logged_refusals_.size() >= kRefusalsMax) logged_refusals_.clear();
  if (logged_refusals_.insert(reason).second) {
    spdlog::error(Concat("a daemon is refused: ", reason));
  }
}

void Cluster::AnnounceMembershipIfComplete() {
  std::vector<int> ranks;
  for (const Peer& peer : peers_) {
    if (!peer.connected) return;
    ranks.push_back(peer.ranks);
  }
  events_.OnMembership(ranks);
}

void Cluster::CallDuePeers() {
  LinkEvents& events = *this;
  for (int node = options_.node + 1; node < node_count_; ++node) {
    Peer& peer = peers_[node];
    if (peer.link || Clock::now() < peer.call_at) continue;
    const auto link = std::make_shared<CallerLink>(events, node, peer.address);
    // Stop() must find either no link or one that it can end.
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    links_.insert(link);
    peer.link = link;
    link->Call(HelloTo(node));
  }
}

void Cluster::DropSilentLinks() {
  std::vector<std::shared_ptr<Link>> silent;
  {
    std::lock_guard lock(mutex_);
    for (const auto& link : links_) {
      const std::optional<int> node = NodeOf(*link);
      const bool connected = node && peers_[*node].connected;
      if (!connected && Clock::now() - link->start > options_.answer_timeout) {
        silent.push_back(link);
      }
    }
  }
  for (const auto& link : silent) {
    link->Close(grpc::StatusCode::DEADLINE_EXCEEDED,
                Concat("no answer within ", options_.answer_timeout.count(), " ms"));
  }
}

}  // namespace zerod
