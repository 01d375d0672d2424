#include "tests/system/stored_model.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "proto/contract/error.h"
#include "tests/support/child_process.h"

namespace zerod {
namespace {

using nlohmann::json;

constexpr int64_t kCompareBytes = 1 << 20;
constexpr size_t kPatternNumel = 1 << 18;

void ReadFile(const std::string& path, std::map<std::string, StoredTensor>& tensors) {
  std::ifstream file(path, std::ios::binary);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  std::string header(header_bytes, '\0');
  file.read(header.data(), static_cast<std::streamsize>(header_bytes));
  if (!file) throw std::runtime_error("cannot read " + path);
  const json entries = json::parse(header);
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__") continue;
    const auto offsets = entry.at("data_offsets").get<std::vector<int64_t>>();
    tensors[name] = {path, entry.at("dtype"), entry.at("shape"),
                     static_cast<int64_t>(sizeof(header_bytes) + header_bytes) + offsets[0],
                     offsets[1] - offsets[0]};
  }
}

using Shapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

Shapes ShapesOf(const ModelShape& model) {
  const int64_t width = model.hidden_size;
  Shapes shapes = {{"gpt_neox.embed_in.weight", {model.vocab_size, width}}};
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string prefix = Concat("gpt_neox.layers.", layer, ".");
    const auto add = [&](const std::string& name, int64_t rows, int64_t columns) {
      if (columns > 0) shapes.push_back({prefix + name + ".weight", {rows, columns}});
      if (columns == 0) shapes.push_back({prefix + name + ".weight", {rows}});
      shapes.push_back({prefix + name + ".bias", {rows}});
    };
    add("input_layernorm", width, 0);
    add("post_attention_layernorm", width, 0);
    add("attention.query_key_value", 3 * width, width);
    add("attention.dense", width, width);
    add("mlp.dense_h_to_4h", 4 * width, width);
    add("mlp.dense_4h_to_h", width, 4 * width);
  }
  shapes.push_back({"gpt_neox.final_layer_norm.weight", {width}});
  shapes.push_back({"gpt_neox.final_layer_norm.bias", {width}});
  shapes.push_back({"embed_out.weight", {model.vocab_size, width}});
  return shapes;
}

int64_t BytesOf(const std::vector<int64_t>& shape) {
  int64_t bytes = 4;
  for (const int64_t size : shape) bytes *= size;
  return bytes;
}

/// Values from -0.06 to 0.06; 65521 is a prime, so that rows and files don't repeat alike.
std::vector<float> Pattern() {
  std::vector<float> pattern(kPatternNumel);
  for (size_t i = 0; i < pattern.size(); ++i) {
    pattern[i] = (static_cast<float>(i * 7919 % 65521) / 65521.0f - 0.5f) * 0.12f;
  }
  return pattern;
}

void WriteWeights(const std::string& path, const Shapes& shapes) {
  static const std::vector<float> kPattern = Pattern();
  json header = json::object();
  int64_t end = 0;
  for (const auto& [name, shape] : shapes) {
    const int64_t begin = end;
    end += BytesOf(shape);
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::ofstream file(path, std::ios::binary);
  const uint64_t header_bytes = text.size();
  file.write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
  file << text;
  size_t phase = 0;
  for (const auto& [name, shape] : shapes) {
    phase = (phase + 104'729) % (kPatternNumel / 2);
    for (int64_t left = BytesOf(shape); left > 0;) {
      const auto most = static_cast<int64_t>((kPatternNumel - phase) * sizeof(float));
      file.write(reinterpret_cast<const char*>(kPattern.data() + phase), std::min(left, most));
      left -= std::min(left, most);
    }
  }
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

void WriteConfig(const std::string& folder, const ModelShape& shape) {
  std::ofstream(folder + "/config.json") << json{
      {"model_type", "gpt_neox"},
      {"vocab_size", shape.vocab_size},
      {"hidden_size", shape.hidden_size},
      {"num_hidden_layers", shape.layers},
      {"num_attention_heads", shape.heads},
      {"intermediate_size", 4 * shape.hidden_size},
      {"max_position_embeddings", 64},
      {"hidden_act", "gelu"},
      {"rotary_pct", 0.25},
      {"attention_dropout", shape.dropout},
      {"hidden_dropout", shape.dropout},
      {"torch_dtype", "float32"},
      {"tie_word_embeddings", false}}.dump(1);
}

}  // namespace

std::map<std::string, StoredTensor> ReadStoredModel(const std::string& folder) {
  std::map<std::string, StoredTensor> tensors;
  const std::string index = ReadWholeFile(folder + "/model.safetensors.index.json");
  if (index.empty()) {
    ReadFile(folder + "/model.safetensors", tensors);
    return tensors;
  }
  const json places = json::parse(index).at("weight_map");
  const std::set<std::string> files(places.begin(), places.end());
  for (const std::string& file : files) ReadFile(folder + "/" + file, tensors);
  return tensors;
}

bool SameTensor(const StoredTensor& one, const StoredTensor& other) {
  if (one.dtype != other.dtype || one.shape != other.shape || one.size_bytes != other.size_bytes) {
    return false;
  }
  std::ifstream first(one.path, std::ios::binary);
  std::ifstream second(other.path, std::ios::binary);
  first.seekg(one.offset_bytes);
  second.seekg(other.offset_bytes);
  std::vector<char> mine(kCompareBytes);
  std::vector<char> theirs(kCompareBytes);
  for (int64_t left = one.size_bytes; left > 0; left -= kCompareBytes) {
    const auto count = static_cast<std::streamsize>(std::min(left, kCompareBytes));
    if (!first.read(mine.data(), count) || !second.read(theirs.data(), count)) return false;
    if (std::memcmp(mine.data(), theirs.data(), static_cast<size_t>(count)) != 0) return false;
  }
  return true;
}

int64_t WriteModel(const std::string& folder, const ModelShape& model) {
  std::filesystem::create_directories(folder);
  WriteConfig(folder, model);
  const Shapes shapes = ShapesOf(model);
  json index = {{"metadata", json::object()}, {"weight_map", json::object()}};
  int64_t bytes = 0;
  for (int file = 0; file < model.files; ++file) {
    const std::string name =
        model.files == 1 ? "model.safetensors"
                         : Concat("model-0000", file + 1, "-of-0000", model.files, ".safetensors");
    const size_t begin = shapes.size() * static_cast<size_t>(file) / model.files;
    const size_t end = shapes.size() * static_cast<size_t>(file + 1) / model.files;
    const Shapes part(shapes.begin() + begin, shapes.begin() + end);
    WriteWeights(folder + "/" + name, part);
    for (const auto& [tensor, shape] : part) {
      bytes += BytesOf(shape);
      index["weight_map"][tensor] = name;
    }
  }
  index["metadata"]["total_size"] = bytes;
  if (model.files > 1) std::ofstream(folder + "/model.safetensors.index.json") << index.dump(1);
  return bytes;
}

void WriteTokens(const std::string& path, int64_t count, int64_t vocab_size) {
  std::ofstream file(path, std::ios::binary);
  for (int64_t i = 0; i < count; ++i) {
    const auto token = static_cast<uint16_t>(i * i * 31 % 65521 * 7 % vocab_size);
    file.write(reinterpret_cast<const char*>(&token), sizeof(token));
  }
}

}  // namespace zerod
