#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "proto/contract/file_range.h"
#include "server/store/layer_store.h"
#include "server/store/topology.h"

namespace zerod {

/// One import as a node sees it. All references outlive the call.
struct ImportWork {
  const Topology& topology;
  const std::vector<std::string>& roots;  ///< folders from which files may be read
  const std::vector<FileRange>& ranges;   ///< by tensor of the layer
  const std::atomic<bool>& cancelled;     ///< set: the values don't matter any more
};

/// Fills the shards of the local ranks, one thread each: parameters and, where there are any,
/// masters. Reads only the bytes of these shards, in pieces; padding is left as it is. All files
/// are opened and all ranges checked before the first value is written.
///
/// Throws Error with node, layer, tensor and path: kNotFound, kFailedPrecondition (ModelFile),
/// kDataLoss when a tensor doesn't lie within its file or the file is cut meanwhile.
void ImportShards(const ImportWork& work, const LayerStore& layer);

}  // namespace zerod
