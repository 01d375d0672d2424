#include "server/cluster/handshake.h"

#include "proto/contract/error.h"

namespace zerod {
namespace {

constexpr int kRanksMax = 4096;

}  // namespace

std::optional<std::string> Mismatch(const v1::PeerHello& caller, const v1::PeerHello& callee) {
  if (caller.protocol_version() != callee.protocol_version()) {
    return Concat("node ", caller.node(), " speaks protocol version ", caller.protocol_version(),
                  " (zerod ", caller.version(), "), node ", callee.node(), " version ",
                  callee.protocol_version(), " (zerod ", callee.version(),
                  "); run the same version on all nodes");
  }
  if (caller.node_count() != callee.node_count()) {
    return Concat("node ", caller.node(), " knows ", caller.node_count(), " nodes, node ",
                  callee.node(), " ", callee.node_count(),
                  "; give all nodes the same --peers list");
  }
  if (caller.node() == callee.node()) {
    return Concat("two daemons are node ", caller.node(), "; give each node its own --node");
  }
  if (caller.expected_node() != callee.node()) {
    return Concat("node ", caller.node(), " called node ", caller.expected_node(), ", but node ",
                  callee.node(), " answered; check --node there and the order of --peers");
  }
  for (const v1::PeerHello* hello : {&caller, &callee}) {
    if (hello->node() < 0 || hello->node() >= hello->node_count()) {
      return Concat("there is no node ", hello->node(), " among ", hello->node_count(), " nodes");
    }
    if (hello->ranks() < 1 || hello->ranks() > kRanksMax) {
      return Concat("node ", hello->node(), " says that it has ", hello->ranks(), " ranks");
    }
  }
  if (caller.node() > callee.node()) {
    return Concat("node ", caller.node(), " called node ", callee.node(),
                  "; the lower node calls the higher one");
  }
  return std::nullopt;
}

}  // namespace zerod
