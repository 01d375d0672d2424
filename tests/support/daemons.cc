#include "tests/support/daemons.h"

#include <numeric>
#include <stdexcept>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/contract/error.h"

namespace zerod {
namespace {

constexpr std::chrono::seconds kStartTimeout{30};
constexpr std::chrono::seconds kStopTimeout{10};

}  // namespace

std::vector<int> FreePorts(size_t count) {
  std::vector<int> sockets;
  std::vector<int> ports;
  for (size_t i = 0; i < count; ++i) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    sockets.push_back(socket(AF_INET, SOCK_STREAM, 0));
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(sockets.back(), generic, length) != 0 ||
        getsockname(sockets.back(), generic, &length) != 0) {
      throw std::runtime_error("no free port on loopback");
    }
    ports.push_back(ntohs(address.sin_port));
  }
  for (int fd : sockets) close(fd);
  return ports;
}

Daemons::Daemons(std::vector<int> ranks, std::vector<std::string> arguments)
    : ranks_(std::move(ranks)) {
  const std::vector<int> ports = FreePorts(ranks_.size());
  std::string peers;
  for (int port : ports) peers += Concat(peers.empty() ? "" : ",", "127.0.0.1:", port);
  for (size_t node = 0; node < ranks_.size(); ++node) {
    sockets_.push_back(folder_.File(Concat("n", node)));
    ChildOptions options;
    options.arguments = {ZEROD_PROGRAM,
                         "--node",
                         std::to_string(node),
                         "--peers",
                         peers,
                         "--ranks",
                         std::to_string(ranks_[node]),
                         "--socket",
                         sockets_.back(),
                         "--listen",
                         Concat("127.0.0.1:", ports[node])};
    options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
    options.environment["ZEROD_MODEL_ROOT"] = Concat(ZEROD_TEST_DATA, ",/tmp");
    options.output_path = folder_.File(Concat("out", node));
    options.error_path = folder_.File(Concat("err", node));
    processes_.push_back(std::make_unique<ChildProcess>(options));
  }
  for (size_t node = 0; node < ranks_.size(); ++node) {
    const std::string output = folder_.File(Concat("out", node));
    const bool started = WaitUntil(kStartTimeout, [&] {
      return ReadWholeFile(output).find("listening") != std::string::npos ||
             processes_[node]->Wait(std::chrono::milliseconds(0)) >= 0;
    });
    if (!started || processes_[node]->Wait(std::chrono::milliseconds(0)) >= 0) {
      throw std::runtime_error(Concat("zerod of node ", node, " didn't start: ", log(node)));
    }
  }
}

Daemons::~Daemons() {
  for (const auto& process : processes_) process->Signal(SIGTERM);
  for (size_t node = 0; node < processes_.size(); ++node) {
    const int code = processes_[node]->Wait(kStopTimeout);
    if (code == 128 + SIGTERM || code == 128 + SIGKILL || code == 128 + SIGINT) continue;
    ADD_FAILURE() << "zerod of node " << node << " ended with " << code << ": " << log(node);
  }
}

std::string Daemons::log(int node) const {
  return ReadWholeFile(folder_.File(Concat("err", node)));
}

int Daemons::World() const { return std::accumulate(ranks_.begin(), ranks_.end(), 0); }

SessionOptions Daemons::OptionsOf(int rank) const {
  SessionOptions options;
  options.rank = rank;
  options.world_size = World();
  int node = 0;
  while (rank >= ranks_[node]) rank -= ranks_[node++];
  options.local_rank = rank;
  options.socket_path = sockets_[node];
  options.program = "test";
  options.on_warning = [](const std::string&) {};
  return options;
}

ChildResult Daemons::RunCtl(int node, const std::vector<std::string>& arguments) const {
  ChildOptions options;
  options.arguments = {ZEROCTL_PROGRAM, "--address", "unix:" + sockets_[node], "-o", "json"};
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  return RunChild(options, std::chrono::seconds(20));
}

std::string Daemons::Ctl(int node, const std::vector<std::string>& arguments) const {
  const ChildResult result = RunCtl(node, arguments);
  if (result.exit_code != 0) {
    throw std::runtime_error(Concat("zeroctl ended with ", result.exit_code, ": ", result.error));
  }
  return result.output;
}

}  // namespace zerod
