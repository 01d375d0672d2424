#pragma once

#include <vector>

#include "proto/contract/plan.h"

namespace zerod {

/// Which ranks live on which node: consecutive, in node order.
struct Topology {
  int node = 0;                     ///< this node
  std::vector<int> ranks_per_node;  ///< in node order; each >= 1

  int NodeCount() const { return static_cast<int>(ranks_per_node.size()); }
  int Ranks(int of_node) const { return ranks_per_node[of_node]; }
  int LocalRanks() const { return ranks_per_node[node]; }
  int FirstRank(int of_node) const {
    int first = 0;
    for (int i = 0; i < of_node; ++i) first += ranks_per_node[i];
    return first;
  }
  int World() const { return FirstRank(NodeCount()); }
  int NodeOf(int rank) const {
    int of_node = 0;
    while (rank >= ranks_per_node[of_node]) rank -= ranks_per_node[of_node++];
    return of_node;
  }
  bool IsLocal(int rank) const { return NodeOf(rank) == node; }
  bool operator==(const Topology&) const = default;
};

}  // namespace zerod
