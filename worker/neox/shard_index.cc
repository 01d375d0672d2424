#include "worker/neox/shard_index.h"

#include <nlohmann/json.hpp>

#include "proto/contract/error.h"
#include "worker/neox/input_file.h"
#include "worker/neox/json_text.h"

namespace zerod::neox {
namespace {

using nlohmann::json;

constexpr uint64_t kIndexLimitBytes = 16 << 20;
constexpr const char* kMap = "weight_map";

bool IsPlainName(const std::string& name) {
  return name.ends_with(".safetensors") && !name.starts_with('.') &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos &&
         name.size() <= 255;
}

}  // namespace

std::map<std::string, std::string> ReadShardIndex(const std::string& path) {
  const json index = ParseJsonObject(InputFile(path).ReadAll(kIndexLimitBytes), path);
  const auto map = index.find(kMap);
  if (map == index.end() || !map->is_object() || map->empty()) {
    throw Error(ErrorCode::kDataLoss,
                Concat(path, ": needs a '", kMap, "' from tensor names to file names"));
  }
  std::map<std::string, std::string> files;
  for (const auto& item : map->items()) {
    const std::string* name = item.value().get_ptr<const std::string*>();
    if (name == nullptr || !IsPlainName(*name)) {
      throw Error(ErrorCode::kDataLoss,
                  Concat(path, ": the file of tensor '", item.key().substr(0, 200),
                         "' must be the plain name of a .safetensors file in the same folder"));
    }
    files.emplace(item.key(), *name);
  }
  return files;
}

std::string ShardIndexText(const std::map<std::string, std::string>& files, int64_t total_bytes) {
  const json index = {{"metadata", {{"total_size", total_bytes}}}, {kMap, files}};
  return index.dump(2) + "\n";
}

}  // namespace zerod::neox
