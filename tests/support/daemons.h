#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/session.h"
#include "tests/support/child_process.h"
#include "tests/support/scratch_folder.h"

namespace zerod {

/// A cluster of real zerod processes on loopback, one per entry of `ranks`, with private sockets.
/// Stopped when destroyed; a daemon that doesn't end by SIGTERM fails the test.
class Daemons {
 public:
  /// `arguments` go to every daemon, e.g. {"--failpoints", "gather_delay_ms=50"}. Weights may be
  /// imported from the tests' data and from scratch folders, unless they say otherwise.
  explicit Daemons(std::vector<int> ranks, std::vector<std::string> arguments = {});
  ~Daemons();

  int World() const;
  int LocalRanks(int node) const { return ranks_[node]; }
  /// How the worker of a global rank attaches.
  SessionOptions OptionsOf(int rank) const;
  const std::string& socket(int node) const { return sockets_[node]; }
  ChildProcess& process(int node) { return *processes_[node]; }
  std::string log(int node) const;
  /// zeroctl's JSON output for a node; throws if it fails.
  std::string Ctl(int node, const std::vector<std::string>& arguments) const;
  ChildResult RunCtl(int node, const std::vector<std::string>& arguments) const;

 private:
  ScratchFolder folder_;
  std::vector<int> ranks_;
  std::vector<std::string> sockets_;
  std::vector<std::unique_ptr<ChildProcess>> processes_;
};

/// TCP ports of loopback that were free a moment ago.
std::vector<int> FreePorts(size_t count);

}  // namespace zerod
