#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/contract/plan.h"
#include "worker/neox/checkpoint.h"
#include "worker/neox/config.h"
#include "worker/sharded/sharded_model.h"

namespace zerod::train {

struct ExportOptions {
  std::string folder;       ///< made if it isn't there; its parent must exist
  std::string config_path;  ///< the config.json that is copied
  /// The checkpoint that was imported: its names and types are kept, and the exact values of frozen
  /// tensors that the job holds rounded. Null: names and types of the config.
  const neox::Checkpoint* source = nullptr;
  std::optional<DType> dtype = std::nullopt;  ///< of all tensors instead of the stored types
  int64_t max_file_bytes = 5'000'000'000;     ///< of tensors in one file; one tensor is never split
};

/// Writes the model's parameters as a checkpoint that transformers loads: config.json and
/// model.safetensors, or model-00001-of-0000N.safetensors with model.safetensors.index.json if one
/// file would be too large. All ranks call it; rank 0 writes, layer by layer, and never holds more
/// than one layer. What the folder held under these names is replaced once everything is on disk;
/// its other files stay.
///
/// Returns, on rank 0, the names of the tensors that hold NaN or infinite values; they are written
/// as they are.
///
/// On failure (disk full, no permission, a value that the type can't hold) nothing half-made stays,
/// an older export is as it was, and every rank throws Error with the folder and the reason.
std::vector<std::string> Export(const ExportOptions& options, const neox::Config& config,
                                ShardedModel& model);

/// One line that names the first of these tensors and says how many there are; at least one.
std::string NotFiniteText(const std::vector<std::string>& names);

}  // namespace zerod::train
