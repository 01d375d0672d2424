#include "server/cluster/host_port.h"

#include <charconv>

#include "proto/contract/error.h"

namespace zerod {

HostPort ParseHostPort(const std::string& text) {
  const auto refuse = [&text](const char* why) {
    return Error(ErrorCode::kInvalidArgument, Concat("'", text, "' is not HOST:PORT: ", why));
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) throw refuse("the port is missing");
  HostPort result{.host = text.substr(0, colon), .port = 0};
  if (result.host.starts_with('[') && result.host.ends_with(']')) {
    result.host = result.host.substr(1, result.host.size() - 2);
  } else if (result.host.find(':') != std::string::npos) {
    throw refuse("an IPv6 address needs brackets");
  }
  if (result.host.empty()) throw refuse("the host is missing");
  const char* begin = text.data() + colon + 1;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, result.port);
  if (error != std::errc() || stop != end || result.port < 1 || result.port > 65'535) {
    throw refuse("the port must be 1 to 65535");
  }
  return result;
}

}  // namespace zerod
