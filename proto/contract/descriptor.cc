#include "proto/contract/descriptor.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/contract/error.h"

namespace zerod {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kReplyMagic = 0x7a64'6670;  // "zdfp"
constexpr size_t kErrorBytesMax = 480;
constexpr int kBacklog = 128;
constexpr int kConnectTimeoutS = 10;

struct WireReply {
  uint32_t magic = kReplyMagic;
  uint32_t error_bytes = 0;
  int64_t size_bytes = 0;
  char error[kErrorBytesMax] = {};
};
static_assert(sizeof(WireReply) == 496);

[[noreturn]] void ThrowErrno(ErrorCode code, const std::string& what) {
  throw Error(code, Concat(what, ": ", ErrnoText(errno)));
}

[[noreturn]] void ThrowSocketErrno(const char* what) {
  const bool gone = errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN;
  ThrowErrno(gone ? ErrorCode::kUnavailable : ErrorCode::kInternal, what);
}

/// The time that one whole message may take, however it is split.
class Deadline {
 public:
  explicit Deadline(int timeout_ms)
      : timeout_ms_(timeout_ms), end_(Clock::now() + std::chrono::milliseconds(timeout_ms)) {}

  void Await(int socket, short events) const {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now()).count();
      const int wait_ms = timeout_ms_ < 0 ? -1 : static_cast<int>(left > 0 ? left : 0);
      pollfd entry{socket, events, 0};
      const int ready = poll(&entry, 1, wait_ms);
      if (ready > 0) return;
      if (ready < 0 && errno != EINTR) ThrowErrno(ErrorCode::kInternal, "can't poll a socket");
      if (ready == 0) {
        throw Error(
            ErrorCode::kDeadlineExceeded,
            Concat("the peer of the descriptor socket took more than ", timeout_ms_, " ms"));
      }
    }
  }

 private:
  int timeout_ms_;
  Clock::time_point end_;
};

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

/// Sends all bytes; the descriptor, if any, travels with the first of them.
void SendAll(int socket, std::span<const std::byte> bytes, int fd, const Deadline& deadline) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  while (!bytes.empty()) {
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (fd >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
    }
    const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
      fd = -1;
    } else if (WouldBlock()) {
      deadline.Await(socket, POLLOUT);
    } else {
      ThrowSocketErrno("can't send on the descriptor socket");
    }
  }
}

/// Takes ownership of every descriptor of a received message, wanted or not.
void Collect(msghdr& message, std::vector<FileDescriptor>& fds) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
}

/// Receives exactly `bytes`; returns false if the connection ended before the first. Without a
/// place for descriptors the kernel drops those that a peer sends.
bool ReceiveAll(int socket, std::span<std::byte> bytes, std::vector<FileDescriptor>* fds,
                const Deadline& deadline) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  size_t received = 0;
  while (received < bytes.size()) {
    deadline.Await(socket, POLLIN);
    iovec part{bytes.data() + received, bytes.size() - received};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (fds != nullptr) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
    }
    const ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) {
      if (WouldBlock()) continue;
      ThrowSocketErrno("can't receive on the descriptor socket");
    }
    if (fds != nullptr) {
      Collect(message, *fds);
      if ((message.msg_flags & MSG_CTRUNC) != 0) {
        throw Error(ErrorCode::kDataLoss,
                    "a descriptor got lost on its way: the limit of open files (ulimit -n) is "
                    "reached, or the peer sent more than one");
      }
    }
    if (got == 0) {
      if (received == 0) return false;
      throw Error(ErrorCode::kDataLoss, Concat("a message on the descriptor socket ended after ",
                                               received, " of ", bytes.size(), " bytes"));
    }
    received += static_cast<size_t>(got);
  }
  return true;
}

template <typename T>
std::span<const std::byte> BytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

sockaddr_un AddressOf(const std::string& path) {
  if (path.empty()) throw Error(ErrorCode::kInvalidArgument, "the path of the socket is empty");
  if (path.size() > kSocketPathBytesMax) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("the socket path ", path, " has ", path.size(), " bytes, at most ",
                       kSocketPathBytesMax, " are possible; choose a shorter one"));
  }
  sockaddr_un address{};
  static_assert(sizeof(address.sun_path) == kSocketPathBytesMax + 1);
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

FileDescriptor NewSocket() {
  FileDescriptor socket_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket_fd.valid()) ThrowErrno(ErrorCode::kResourceExhausted, "can't create a socket");
  // Bounds connect(), which otherwise sleeps while a frozen listener's backlog is full.
  const timeval timeout{kConnectTimeoutS, 0};
  setsockopt(socket_fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  return socket_fd;
}

/// 0, or the errno of connecting.
int TryConnect(int socket_fd, const sockaddr_un& address) {
  int result;
  do {
    result = connect(socket_fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

/// Removes what a dead process left at `path`; throws if it isn't ours to remove.
void RemoveStale(const std::string& path, const sockaddr_un& address) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) {
    throw Error(ErrorCode::kAlreadyExists,
                Concat(path, " exists and isn't a socket; remove it or choose another path"));
  }
  const FileDescriptor probe = NewSocket();
  const int error = TryConnect(probe.get(), address);
  if (error == 0) {
    throw Error(ErrorCode::kAlreadyExists,
                Concat("another process listens on ", path, "; stop it or choose another path"));
  }
  if (error != ECONNREFUSED && error != ENOENT) {
    errno = error;
    ThrowErrno(ErrorCode::kAlreadyExists, Concat("can't take over the socket ", path));
  }
  unlink(path.c_str());
}

}  // namespace

void SendRequest(int socket, const DescriptorRequest& request, int timeout_ms) {
  SendAll(socket, BytesOf(request), -1, Deadline(timeout_ms));
}

bool ReceiveRequest(int socket, DescriptorRequest& request, int timeout_ms) {
  DescriptorRequest received;
  if (!ReceiveAll(socket, std::as_writable_bytes(std::span(&received, 1)), nullptr,
                  Deadline(timeout_ms))) {
    return false;
  }
  const auto kind = static_cast<uint32_t>(received.kind);
  if (kind < 1 || kind > 4 || received.index < 0 || received.chunk < 0 || received.reserved != 0) {
    throw Error(ErrorCode::kDataLoss,
                Concat("malformed request on the descriptor socket: kind ", kind, ", index ",
                       received.index, ", chunk ", received.chunk));
  }
  request = received;
  return true;
}

void SendReply(int socket, const DescriptorReply& reply, const FileDescriptor& fd, int timeout_ms) {
  ZEROD_CHECK(reply.error.empty() == fd.valid(), "a reply carries a descriptor or an error");
  WireReply wire;
  wire.size_bytes = reply.size_bytes;
  wire.error_bytes = static_cast<uint32_t>(std::min(reply.error.size(), kErrorBytesMax));
  std::memcpy(wire.error, reply.error.data(), wire.error_bytes);
  SendAll(socket, BytesOf(wire), fd.get(), Deadline(timeout_ms));
}

DescriptorReply ReceiveReply(int socket, FileDescriptor& fd, int timeout_ms) {
  WireReply wire;
  std::vector<FileDescriptor> fds;
  if (!ReceiveAll(socket, std::as_writable_bytes(std::span(&wire, 1)), &fds,
                  Deadline(timeout_ms))) {
    throw Error(ErrorCode::kUnavailable, "the daemon closed the descriptor socket");
  }
  const bool ok = wire.error_bytes == 0;
  const size_t expected_fds = ok ? 1 : 0;
  if (wire.magic != kReplyMagic || wire.error_bytes > kErrorBytesMax || wire.size_bytes < 0 ||
      fds.size() != expected_fds) {
    throw Error(ErrorCode::kDataLoss,
                Concat("malformed reply on the descriptor socket: magic ", wire.magic, ", ",
                       wire.error_bytes, " bytes of error, size ", wire.size_bytes, ", ",
                       fds.size(), " descriptors"));
  }
  if (ok) fd = std::move(fds.front());
  return {wire.size_bytes, std::string(wire.error, wire.error_bytes)};
}

std::string DescriptorSocketPath(const std::string& socket_path) { return socket_path + ".fd"; }

FileDescriptor ListenUnix(const std::string& path) {
  const sockaddr_un address = AddressOf(path);
  RemoveStale(path, address);
  FileDescriptor listener = NewSocket();
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    ThrowErrno(errno == EADDRINUSE ? ErrorCode::kAlreadyExists : ErrorCode::kInvalidArgument,
               Concat("can't create the socket ", path));
  }
  // Before listen(): until then nobody can connect, whatever the umask made of the mode.
  if (chmod(path.c_str(), 0600) != 0) {
    ThrowErrno(ErrorCode::kInternal, Concat("can't restrict the socket ", path));
  }
  if (listen(listener.get(), kBacklog) != 0) {
    ThrowErrno(ErrorCode::kInternal, Concat("can't listen on ", path));
  }
  return listener;
}

FileDescriptor ConnectUnix(const std::string& path) {
  const sockaddr_un address = AddressOf(path);
  FileDescriptor socket_fd = NewSocket();
  if (const int error = TryConnect(socket_fd.get(), address); error != 0) {
    errno = error;
    ThrowErrno(ErrorCode::kUnavailable, Concat("nobody answers on the socket ", path));
  }
  return socket_fd;
}

}  // namespace zerod
