#include "server/rpc/descriptor_service.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/contract/error.h"
#include "server/rpc/caught_error.h"

namespace zerod {
namespace {

/// How soon the service looks again at a socket that stays readable without being of use: one with
/// half a request, or the listener while no descriptor is left. poll() can't wait for these.
constexpr std::chrono::milliseconds kPause{20};

}  // namespace

DescriptorService::DescriptorService(std::string path, OpenMemory open)
    : path_(std::move(path)),
      open_(std::move(open)),
      listener_(ListenUnix(path_)),
      stop_(eventfd(0, EFD_CLOEXEC)) {
  if (!stop_.valid()) {
    throw Error(ErrorCode::kResourceExhausted, "cannot create an eventfd: " + ErrnoText(errno));
  }
  thread_ = std::thread([this] { Run(); });
}

DescriptorService::~DescriptorService() {
  const uint64_t one = 1;
  ZEROD_CHECK(write(stop_.get(), &one, sizeof(one)) == sizeof(one), ErrnoText(errno));
  thread_.join();
  unlink(path_.c_str());
}

void DescriptorService::Run() {
  for (;;) {
    bool pause = Clock::now() < accept_after_;
    const bool accept = !pause && connections_.size() < kConnectionsMax;
    std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0},
                                  {accept ? listener_.get() : -1, POLLIN, 0}};
    for (const Connection& connection : connections_) {
      const bool waits = connection.half_since != Clock::time_point::max();
      pause |= waits;
      polled.push_back({waits ? -1 : connection.socket.get(), POLLIN, 0});
    }
    const int timeout_ms = pause ? static_cast<int>(kPause.count()) : -1;
    if (poll(polled.data(), polled.size(), timeout_ms) < 0 && errno != EINTR) {
      spdlog::error(Concat("the descriptor socket is no longer served: ", ErrnoText(errno)));
      return;
    }
    if (polled[0].revents != 0) return;
    std::vector<Connection> kept;
    for (size_t i = 0; i < connections_.size(); ++i) {
      const bool waits = polled[i + 2].fd < 0;
      const bool keep = (polled[i + 2].revents == 0 && !waits) || Serve(connections_[i]);
      if (keep) kept.push_back(std::move(connections_[i]));
    }
    connections_ = std::move(kept);
    if (polled[1].revents != 0) Accept();
  }
}

void DescriptorService::Accept() {
  FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.valid()) {
    connections_.push_back({std::move(socket)});
    return;
  }
  if (errno == EMFILE || errno == ENFILE) {
    spdlog::error(Concat("a worker can't reach the descriptor socket: ", ErrnoText(errno),
                         "; raise the limit of open files"));
    accept_after_ = Clock::now() + kPause;
  }
}

bool DescriptorService::Serve(Connection& connection) const {
  const int socket = connection.socket.get();
  int waiting_bytes = 0;
  if (ioctl(socket, FIONREAD, &waiting_bytes) != 0 || waiting_bytes == 0) return false;
  if (waiting_bytes < static_cast<int>(sizeof(DescriptorRequest))) {
    const Clock::time_point now = Clock::now();
    connection.half_since = std::min(connection.half_since, now);
    return now - connection.half_since < kHalfRequestLimit;
  }
  connection.half_since = Clock::time_point::max();
  try {
    DescriptorRequest request;
    if (!ReceiveRequest(socket, request, 0)) return false;
    Answer(socket, request);
    return true;
  } catch (const Error& error) {
    spdlog::warn(Concat("a connection to the descriptor socket is closed: ", error.what()));
    return false;
  }
}

void DescriptorService::Answer(int socket, const DescriptorRequest& request) const {
  DescriptorReply reply;
  FileDescriptor fd;
  try {
    fd = open_(request, reply.size_bytes);
  } catch (...) {
    reply.size_bytes = 0;
    reply.error = CaughtError().what();
  }
  SendReply(socket, reply, fd, 0);
}

}  // namespace zerod
