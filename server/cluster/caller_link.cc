#include "server/cluster/caller_link.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include "server/cluster/peer_messages.h"

namespace zerod {
namespace {

constexpr int kKeepaliveMs = 10'000;
constexpr int kResolveMs = 2'000;

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kPeerMessageBytesMax);
  arguments.SetMaxSendMessageSize(kPeerMessageBytesMax);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_DNS_ARES_QUERY_TIMEOUT_MS, kResolveMs);
  // A peer whose machine vanished is noticed although nothing is sent to it.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

std::string ReasonOf(const grpc::Status& status) {
  const std::string& text = status.error_message();
  if (status.ok()) return "it closed the link";
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return "what answers there is no zerod of several nodes";
  }
  if (text.find("DNS resolution failed") != std::string::npos)
    return "the name doesn't resolve yet";
  if (text.find("Connection refused") != std::string::npos) return "nobody listens there yet";
  return text.empty() ? "the connection was lost" : text;
}

}  // namespace

CallerLink::CallerLink(LinkEvents& events, int node, const std::string& address)
    : Link(events, node), stub_(v1::Peer::NewStub(ChannelTo(address))) {}

void CallerLink::Call(std::shared_ptr<const v1::PeerMessage> hello) {
  self_ = shared_from_this();
  stub_->async()->Link(&context_, this);
  // Reads and writes come from threads of ours, too: the hold keeps the stream until StartEnd.
  AddHold();
  Send(std::move(hello));
  ReadNext();
  StartCall();
}

void CallerLink::StartEnd(const grpc::Status& status, bool) {
  // Cancelling a stream that the other end has ended could hide its status.
  if (!status.ok()) context_.TryCancel();
  RemoveHold();
}

void CallerLink::OnDone(const grpc::Status& status) {
  Done(ReasonOf(status), status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
}

}  // namespace zerod
