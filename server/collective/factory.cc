#include <memory>

#include "proto/contract/error.h"
#include "server/collective/communicator.h"
#include "server/collective/gloo_communicator.h"
#include "server/collective/lone_communicator.h"

namespace zerod {

std::unique_ptr<Communicator> MakeGlooCommunicator(const CommunicatorOptions& options,
                                                   RendezvousStore& store) {
  if (options.node_count == 1) return std::make_unique<LoneCommunicator>(options);
  return std::make_unique<GlooCommunicator>(options, store);
}

}  // namespace zerod
