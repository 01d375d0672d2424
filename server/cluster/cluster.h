#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "server/cluster/link.h"
#include "server/engine/peer_link.h"

namespace grpc {
class Service;
}

namespace zerod {

struct ClusterOptions {
  // Behaviour
  int node = 0;
  std::vector<std::string> peers;  ///< HOST:PORT of every node in node order; empty: one node
  int ranks = 1;                   ///< local ranks of this node
  std::string version;             ///< of the program, for messages to the user

  // Performance
  std::chrono::milliseconds retry{300};            ///< between two calls of a peer that isn't there
  std::chrono::milliseconds report_period{5'000};  ///< between two log lines about such a peer
  std::chrono::milliseconds answer_timeout{5'000};  ///< for the first message of a new link
};

/// One node as this node sees it.
struct PeerState {
  int node = 0;
  std::string address;
  bool connected = false;
  int ranks = 0;     ///< 0: not known
  std::string note;  ///< why it isn't connected
};

/// The links to all other daemons. Of two nodes the lower one calls the higher one, until both are
/// connected and again after each loss. Both check that they belong together first (handshake.h).
///
/// PeerEvents are called from one thread, one at a time: the messages of a node in order, its loss
/// after its last message. A message may come before the membership that this node waits for, from
/// a peer that already has it.
///
/// Thread-safe. `events` must outlive Stop().
class Cluster final : public PeerLink, private LinkEvents {
 public:
  /// Throws Error kInvalidArgument for a peer list without `node`, or with an entry that isn't
  /// HOST:PORT.
  Cluster(ClusterOptions options, PeerEvents& events);
  ~Cluster() override;  ///< stops
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  /// To be served at this node's entry of the list; lives as long as the cluster.
  grpc::Service* service();

  /// Begins to call and to accept. A lone node has its membership at once.
  void Start();

  /// Sends what is queued for up to a second, then ends all links. No event comes afterwards. To be
  /// called before the server that hosts service() shuts down.
  void Stop();

  void Send(int node, const PeerMessage& message) override;
  void Broadcast(const PeerMessage& message) override;
  std::string WaitingFor() const override;
  std::string DataHost() const override { return data_host_; }

  std::vector<PeerState> States() const;

 private:
  class PeerService;
  using Clock = std::chrono::steady_clock;

  struct Peer {
    std::string address;
    std::shared_ptr<Link> link;  // being tried or connected
    bool connected = false;
    int ranks = 0;
    uint64_t incarnation = 0;
    std::string note;
    std::string refusal;  // the last one in the log
    Clock::time_point call_at{};
    Clock::time_point report_at{};
  };

  struct Event {
    std::shared_ptr<Link> link;
    std::optional<v1::PeerMessage> message;  // nothing: the link has ended
    std::string reason;
    bool refused = false;
  };

  void OnLinkMessage(const std::shared_ptr<Link>& link, v1::PeerMessage message) override;
  void OnLinkEnd(std::shared_ptr<Link> link, const std::string& reason, bool refused) override;

  bool Adopt(const std::shared_ptr<Link>& link);
  std::shared_ptr<const v1::PeerMessage> HelloTo(int node) const;
  std::shared_ptr<Link> LinkTo(int node) const;

  // All below run in thread_, which alone changes peers_.
  void Run();
  void Handle(Event& event);
  void HandleMessage(const std::shared_ptr<Link>& link, const v1::PeerMessage& message);
  void HandleEnd(const Event& event);
  void HandleHello(const std::shared_ptr<Link>& link, const v1::PeerHello& hello);
  std::optional<std::string> RefusalOf(const Link& link, const v1::PeerHello& hello) const;
  void Connect(const std::shared_ptr<Link>& link, const v1::PeerHello& hello);
  void LogRefusal(const std::string& reason);
  void NoteUnreachable(int node, const std::string& reason, bool refused);
  void AnnounceMembershipIfComplete();
  void CallDuePeers();
  void DropSilentLinks();
  std::optional<int> NodeOf(const Link& link) const;

  const ClusterOptions options_;
  const int node_count_;
  const uint64_t incarnation_;
  const std::string data_host_;
  PeerEvents& events_;
  std::unique_ptr<PeerService> service_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Peer> peers_;
  std::set<std::shared_ptr<Link>> links_;  // all that haven't told their end
  std::deque<Event> queue_;
  std::set<std::string> logged_refusals_;
  bool started_ = false;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace zerod
