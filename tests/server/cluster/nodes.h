#pragma once

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <netinet/in.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/cluster/cluster.h"
#include "server/cluster/peer_messages.h"

namespace zerod::testing {

using std::chrono::milliseconds;
using namespace std::chrono_literals;

/// What a cluster told, as lines like "membership 1 2 2", "lost 1", "from 2 end 7" (epoch).
class Recorder final : public PeerEvents {
 public:
  void OnPeerMessage(int node, const PeerMessage& message) override {
    Add(Concat("from ", node, " ", message.body.index(), " ", message.epoch));
  }
  void OnPeerLost(int node, const std::string&) override { Add(Concat("lost ", node)); }
  void OnMembership(const std::vector<int>& ranks) override {
    std::string line = "membership";
    for (const int count : ranks) line += Concat(" ", count);
    Add(line);
  }

  /// Waits until `count` lines begin with `prefix`; false after ten seconds.
  bool Await(const std::string& prefix, int count = 1) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 10s, [&] { return CountLocked(prefix) >= count; });
  }
  int Count(const std::string& prefix) {
    std::lock_guard lock(mutex_);
    return CountLocked(prefix);
  }
  std::vector<std::string> lines() {
    std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  void Add(std::string line) {
    std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
    changed_.notify_all();
  }
  int CountLocked(const std::string& prefix) const {
    int count = 0;
    for (const std::string& line : lines_) count += line.starts_with(prefix);
    return count;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

/// Free ports of this machine, for servers that the test starts later.
inline std::vector<std::string> FreeAddresses(int count) {
  std::vector<int> sockets;
  std::vector<std::string> addresses;
  for (int i = 0; i < count; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    ZEROD_CHECK(bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0, ErrnoText(errno));
    ZEROD_CHECK(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0,
                ErrnoText(errno));
    sockets.push_back(fd);
    addresses.push_back(Concat("127.0.0.1:", ntohs(address.sin_port)));
  }
  for (const int fd : sockets) close(fd);
  return addresses;
}

inline std::unique_ptr<grpc::Server> Serve(const std::string& address, grpc::Service* service) {
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(kPeerMessageBytesMax);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(service);
  return builder.BuildAndStart();
}

/// A daemon as far as its peers see it: a cluster behind a server.
class Node {
 public:
  Node(int node, const std::vector<std::string>& peers, int ranks = 1)
      : Node({.node = node,
              .peers = peers,
              .ranks = ranks,
              .version = "test",
              .retry = 50ms,
              .report_period = 300ms,
              .answer_timeout = 2s},
             peers[node]) {}

  Node(ClusterOptions options, const std::string& address)
      : cluster_(std::move(options), recorder_), server_(Serve(address, cluster_.service())) {
    cluster_.Start();
  }
  ~Node() {
    cluster_.Stop();
    if (server_) server_->Shutdown();
  }

  Recorder& recorder() { return recorder_; }
  Cluster& cluster() { return cluster_; }

 private:
  Recorder recorder_;
  Cluster cluster_;
  std::unique_ptr<grpc::Server> server_;
};

/// Collects what is logged for as long as it lives. Any thread may log while it is read.
class LogCapture {
 public:
  LogCapture() : previous_(spdlog::default_logger()), sink_(std::make_shared<TextSink>()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("capture", sink_));
  }
  ~LogCapture() { spdlog::set_default_logger(previous_); }

  /// Lines that contain `part`.
  int Count(const std::string& part) const {
    std::istringstream lines(text());
    int count = 0;
    for (std::string line; std::getline(lines, line);) {
      count += line.find(part) != std::string::npos;
    }
    return count;
  }
  std::string text() const { return sink_->text(); }

 private:
  /// With a lock of ours: ThreadSanitizer doesn't see those that libspdlog takes.
  class TextSink : public spdlog::sinks::sink {
   public:
    std::string text() const {
      const std::lock_guard lock(mutex_);
      return text_;
    }

    void log(const spdlog::details::log_msg& message) override {
      const std::lock_guard lock(mutex_);
      text_.append(message.payload.data(), message.payload.size()).push_back('\n');
    }
    void flush() override {}
    void set_pattern(const std::string& /*pattern*/) override {}
    void set_formatter(std::unique_ptr<spdlog::formatter> /*formatter*/) override {}

   private:
    mutable std::mutex mutex_;
    std::string text_;
  };

  std::shared_ptr<spdlog::logger> previous_;
  std::shared_ptr<TextSink> sink_;
};

inline PeerMessage End(uint64_t epoch) { return {.epoch = epoch, .body = EndNotice{}}; }

}  // namespace zerod::testing
