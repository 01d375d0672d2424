#pragma once

#include <map>

#include "server/engine/peer_link.h"

namespace zerod {

/// Whether the nodes' proposals make a group, and what it is: created or attached, and its epoch
/// (one above all that any node has seen). A refusal names the first difference with the nodes and
/// both values. Pure; `proposals` holds every node's.
Decision DecideFormation(const std::map<int, Proposal>& proposals);

}  // namespace zerod
