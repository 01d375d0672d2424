#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/contract/operation.h"
#include "server/collective/communicator.h"
#include "server/store/layer_store.h"

namespace zerod {

/// Moves whole layers between nodes, once per node and ticket. Runs on the node's lane. On a single
/// node the communicator is null and only local copies are made. All throw Error from the
/// communicator.
class LayerExchange {
 public:
  LayerExchange(const Topology& topology, Communicator* communicator)
      : topology_(topology), communicator_(communicator) {}

  /// Sends this node's shards to all nodes and receives theirs in place.
  void Gather(const LayerStore& layer, uint64_t ticket) const;

  /// Scatters float32 values from the staging buffer of `source_rank` (`stage` on its node, empty
  /// elsewhere) into all shards: masters and parameters. Gaps between tensors become zero.
  void Write(const LayerStore& layer, uint64_t ticket, int source_rank,
             std::span<std::byte> stage) const;

  /// Assembles the full chunks in each of `stages` (of local ranks; may be empty, the other nodes
  /// still get this node's part). Gradients that were never reduced read as zero.
  void Read(const LayerStore& layer, uint64_t ticket, Content content,
            const std::vector<std::span<std::byte>>& stages) const;

 private:
  void WriteChunk(const LayerStore& layer, uint64_t ticket, int chunk, int source_node,
                  std::span<std::byte> full) const;
  /// `full` is the whole chunk, or empty where nobody wants it.
  void ReadChunk(const LayerStore& layer, const SegmentTag& tag, Content content,
                 std::span<std::byte> full) const;

  const Topology& topology_;
  Communicator* communicator_;
};

}  // namespace zerod
