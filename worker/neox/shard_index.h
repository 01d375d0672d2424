#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace zerod::neox {

/// Reads a model.safetensors.index.json: the name of each tensor and of the file beside the index
/// that has it. Files are plain names that end in .safetensors, so that an index can't point out of
/// its folder. Throws Error with the file: kNotFound without it, else kDataLoss.
std::map<std::string, std::string> ReadShardIndex(const std::string& path);

/// The text of such a file. `total_bytes` is the size of all tensors.
std::string ShardIndexText(const std::map<std::string, std::string>& files, int64_t total_bytes);

}  // namespace zerod::neox
