#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "proto/contract/shared_memory.h"

namespace zerod {

/// Which memory of an attach a worker asks for.
enum class MemoryKind : uint32_t {
  kControlPage = 1,  ///< read-write, kControlPageBytes
  kRegion = 2,       ///< read-only, header page + chunk; layer and chunk index
  kSlot = 3,         ///< read-write gradient slot; index
  kStage = 4,        ///< read-write, fresh staging buffer for a layer; replaces the former one
};

/// One request on the descriptor socket; answered in order. Fixed size on the wire.
struct DescriptorRequest {
  uint64_t token = 0;  ///< of the attach, from its welcome message
  MemoryKind kind = MemoryKind::kControlPage;
  int32_t index = 0;  ///< kRegion, kStage: layer; kSlot: slot
  int32_t chunk = 0;  ///< kRegion
  int32_t reserved = 0;
};
static_assert(sizeof(DescriptorRequest) == 24);

/// The answer; a descriptor comes with it when `error` is empty.
struct DescriptorReply {
  int64_t size_bytes = 0;
  std::string error;  ///< at most 480 bytes on the wire
};

/// Both halves of the exchange over a connected Unix stream socket. All throw Error (kUnavailable
/// when the peer is gone, kDataLoss on a malformed message, kDeadlineExceeded after `timeout_ms`).
void SendRequest(int socket, const DescriptorRequest& request, int timeout_ms);
/// Returns false on an orderly end of the connection before a request.
bool ReceiveRequest(int socket, DescriptorRequest& request, int timeout_ms);
void SendReply(int socket, const DescriptorReply& reply, const FileDescriptor& fd, int timeout_ms);
DescriptorReply ReceiveReply(int socket, FileDescriptor& fd, int timeout_ms);

/// Longest path a Unix socket may have here, without the terminating zero.
inline constexpr size_t kSocketPathBytesMax = 107;

/// Path of the descriptor socket that belongs to a control socket.
std::string DescriptorSocketPath(const std::string& socket_path);

/// Listening or connected Unix stream sockets, CLOEXEC. Throw Error: kInvalidArgument for a path
/// that is too long (both lengths named), kUnavailable when nobody listens, kAlreadyExists when a
/// living process listens there already (a stale file is replaced).
FileDescriptor ListenUnix(const std::string& path);
FileDescriptor ConnectUnix(const std::string& path);

}  // namespace zerod
