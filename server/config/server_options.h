#pragma once

#include <string>
#include <vector>

#include "server/engine/options.h"

namespace zerod {

/// Everything a daemon is told at its start.
struct ServerOptions {
  // Behaviour
  EngineOptions engine;
  std::vector<std::string>
      peers;  ///< HOST:PORT of every node in node order, own included; empty: one node
  std::string socket_path;  ///< control socket of the node's workers
  std::string listen;  ///< HOST:PORT for peers, zeroctl and health checks; port 0: any free one

  // Logging
  std::string log_level = "info";  ///< trace, debug, info, warn, error or off
};

}  // namespace zerod
