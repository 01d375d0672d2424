#pragma once

#include <optional>
#include <string>

#include "proto/contract/plan.h"

namespace zerod {

/// Names the first thing in which a layer that a worker registers differs from the job's, with both
/// values: "layer 'block3' tensor 'weight': shape [4, 4] here, [4, 8] in the job". Empty if they
/// are equal, which is when their HashOf() is.
std::optional<std::string> FirstDifference(const LayerSpec& here, const LayerSpec& in_job);

}  // namespace zerod
