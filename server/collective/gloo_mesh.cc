#include "server/collective/gloo_mesh.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <exception>
#include <utility>

#include <gloo/transport/address.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/contract/error.h"

namespace zerod {
namespace {

using std::chrono::milliseconds;

std::string AddressKey(const std::string& name, int node) { return Concat(name, "/", node); }

// Gloo writes to its sockets without MSG_NOSIGNAL: with the default disposition a peer that died
// would end this process, too.
void IgnoreBrokenPipes() {
  struct sigaction action {};
  sigaction(SIGPIPE, nullptr, &action);
  if (action.sa_handler != SIG_DFL) return;
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

// Why this machine can't listen on `host`; empty if it can. Gloo would tell less, and leak.
std::string ListenProblem(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) return gai_strerror(error);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  std::string problem;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    const int fd = socket(address->ai_family, address->ai_socktype, address->ai_protocol);
    const bool bound = fd >= 0 && bind(fd, address->ai_addr, address->ai_addrlen) == 0;
    if (!bound) problem = ErrnoText(errno);
    if (fd >= 0) close(fd);
    if (bound) return {};
  }
  return problem;
}

std::shared_ptr<gloo::transport::Device> Listen(const CommunicatorOptions& options) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = options.host;
  std::string problem = ListenProblem(options.host);
  try {
    if (problem.empty()) return gloo::transport::tcp::CreateDevice(attributes);
  } catch (const std::exception& exception) {
    problem = GlooText(exception);
  }
  throw Error(ErrorCode::kUnavailable,
              Concat("communicator ", options.name, ": node ", options.node,
                     " can't listen on its own address ", options.host, ": ", problem,
                     "; the entry of a node in the peer list must name an address of its host"));
}

}  // namespace

std::string GlooText(const std::exception& exception) {
  std::string text = exception.what();
  if (text.starts_with('[')) {
    const size_t end = text.find("] ");
    if (end != std::string::npos) text.erase(0, end + 2);
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n')) text.pop_back();
  return text;
}

GlooMesh::GlooMesh(const CommunicatorOptions& options, RendezvousStore& store) : options_(options) {
  ZEROD_CHECK(options.node_count >= 2, "a mesh of ", options.node_count, " nodes");
  ZEROD_CHECK(0 <= options.node && options.node < options.node_count, "node ", options.node, " of ",
              options.node_count);
  IgnoreBrokenPipes();
  device_ = Listen(options);
  context_ = device_->createContext(options.node, options.node_count);
  // Gloo waits five times this long for a connection.
  context_->setTimeout(std::max(options.timeout / 5, milliseconds(1)));
  for (int node = 0; node < options.node_count; ++node) {
    if (node != options.node) context_->createPair(node);
  }
  Publish(store);
  Connect(store);
}

// Every pair listens on a port of its own; the entry of a node holds the addresses of its pairs in
// the order of their peers. All addresses have the same size.
void GlooMesh::Publish(RendezvousStore& store) const {
  std::string entry;
  for (int node = 0; node < options_.node_count; ++node) {
    if (node == options_.node) continue;
    const std::vector<char> address = context_->getPair(node)->address().bytes();
    entry.append(address.begin(), address.end());
  }
  store.Set(AddressKey(options_.name, options_.node), entry);
}

void GlooMesh::Connect(RendezvousStore& store) {
  for (int node = 0; node < options_.node_count; ++node) {
    if (node == options_.node) continue;
    const std::string where = Concat("communicator ", options_.name, ": node ", options_.node,
                                     " can't reach node ", node, ": ");
    std::string entry;
    try {
      entry = store.Get(AddressKey(options_.name, node), options_.timeout);
    } catch (const Error& error) {
      throw Error(error.code(), where + error.what());
    }
    const size_t address_bytes = context_->getPair(node)->address().bytes().size();
    if (entry.size() != address_bytes * (options_.node_count - 1)) {
      throw Error(ErrorCode::kUnavailable,
                  Concat(where, "its addresses take ", entry.size(), " bytes, not ", address_bytes,
                         " for each of ", options_.node_count - 1,
                         " peers; all nodes must run the same build"));
    }
    const int own_index = options_.node < node ? options_.node : options_.node - 1;
    const auto begin = entry.begin() + static_cast<std::ptrdiff_t>(own_index * address_bytes);
    try {
      context_->getPair(node)->connect(
          std::vector<char>(begin, begin + static_cast<std::ptrdiff_t>(address_bytes)));
    } catch (const std::exception& exception) {
      const std::string text = GlooText(exception);
      const bool late = text.find("timeout") != std::string::npos;
      throw Error(late ? ErrorCode::kDeadlineExceeded : ErrorCode::kUnavailable, where + text);
    }
  }
}

std::unique_ptr<gloo::transport::UnboundBuffer> GlooMesh::CreateBuffer(void* data, size_t bytes) {
  return context_->createUnboundBuffer(data, bytes);
}

void GlooMesh::Close() {
  for (int node = 0; node < options_.node_count; ++node) {
    if (node != options_.node) context_->getPair(node)->close();
  }
}

}  // namespace zerod
