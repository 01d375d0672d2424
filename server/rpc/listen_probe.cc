#include "server/rpc/listen_probe.h"

#include <cerrno>

#include <netdb.h>
#include <sys/socket.h>

#include "proto/contract/error.h"
#include "proto/contract/shared_memory.h"

namespace zerod {
namespace {

/// 0, or the errno of binding and listening.
int TryListen(const addrinfo& info) {
  const FileDescriptor probe(
      socket(info.ai_family, info.ai_socktype | SOCK_CLOEXEC, info.ai_protocol));
  if (!probe.valid()) return errno;
  const int one = 1;
  setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (bind(probe.get(), info.ai_addr, info.ai_addrlen) != 0) return errno;
  return listen(probe.get(), 1) == 0 ? 0 : errno;
}

}  // namespace

ListenFailure WhyNotListening(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {false, "it is not HOST:PORT"};
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found);
  if (failure != 0) return {false, gai_strerror(failure)};
  int error = 0;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    error = TryListen(*info);
  }
  freeaddrinfo(found);
  return {error == EADDRINUSE, error == 0 ? "gRPC refused it" : ErrnoText(error)};
}

}  // namespace zerod
