#include "worker/neox/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "proto/contract/error.h"
#include "worker/neox/input_file.h"
#include "worker/neox/shard_index.h"
#include "worker/neox/tensor_spec.h"

namespace zerod::neox {
namespace {

constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr std::string_view kEmbedding = "gpt_neox.embed_in.weight";
constexpr std::string_view kHead = "embed_out.weight";
constexpr std::string_view kHeadAlias = "lm_head.weight";

[[noreturn]] void Fail(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::kFailedPrecondition, Concat(path, ": ", why));
}

/// Buffers that releases before 4.30 or so saved with each block; they can be computed.
bool IsOldBuffer(std::string_view name, int64_t blocks) {
  constexpr std::string_view kPrefix = "gpt_neox.layers.";
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  int64_t block = -1;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), block);
  if (parsed.ec != std::errc() || block < 0 || block >= blocks) return false;
  name.remove_prefix(static_cast<size_t>(parsed.ptr - name.data()));
  return name == ".attention.bias" || name == ".attention.masked_bias" ||
         name == ".attention.rotary_emb.inv_freq";
}

bool IsFloatingPoint(const std::string& dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

void CheckTensor(const std::string& path, const std::string& stored_name, const TensorSpec& spec,
                 const Safetensors::Entry& entry) {
  if (entry.shape != spec.shape) {
    Fail(path, Concat("tensor '", stored_name, "' has shape ", ShapeText(entry.shape),
                      ", but config.json makes it ", ShapeText(spec.shape)));
  }
  if (!IsFloatingPoint(entry.dtype)) {
    Fail(path, Concat("tensor '", stored_name, "' has type ", entry.dtype,
                      "; F32, F16 and BF16 can be read"));
  }
}

DType StoredDType(const std::string& dtype) {
  if (dtype == "F32") return DType::kFloat32;
  return dtype == "F16" ? DType::kFloat16 : DType::kBFloat16;
}

/// Which of the files a folder's weights are in, as transformers chooses.
std::string EntryPoint(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return path;
  for (const char* name : {kWeightsFile, kIndexFile}) {
    if (std::string file = Concat(path, "/", name); PathExists(file)) return file;
  }
  throw Error(ErrorCode::kNotFound,
              Concat("there is neither ", kWeightsFile, " nor ", kIndexFile, " in ", path));
}

using Stored = std::map<std::string, const Safetensors*>;  // by the name in the file

void AddSingle(const std::string& path, std::deque<Safetensors>& files, Stored& stored) {
  const Safetensors& file = files.emplace_back(path);
  for (const auto& [name, entry] : file.tensors()) stored.emplace(name, &file);
}

void AddShards(const std::string& path, std::deque<Safetensors>& files, Stored& stored) {
  const std::map<std::string, std::string> listed = ReadShardIndex(path);
  const std::string folder = path.substr(0, path.size() - std::string_view(kIndexFile).size());
  std::map<std::string, const Safetensors*> by_name;
  for (const auto& [tensor, name] : listed) {
    const Safetensors*& file = by_name[name];
    if (file == nullptr) file = &files.emplace_back(folder + name);
    if (!file->tensors().contains(tensor)) {
      Fail(path, Concat("says that tensor '", tensor, "' is in ", name, ", but it isn't"));
    }
    stored.emplace(tensor, file);
  }
  for (const auto& [name, file] : by_name) {
    for (const auto& [tensor, entry] : file->tensors()) {
      const auto found = listed.find(tensor);
      if (found != listed.end() && found->second == name) continue;
      Fail(path, Concat("tensor '", tensor, "' is in ", name, ", but the index says ",
                        found == listed.end() ? "nothing of it" : "it is in " + found->second));
    }
  }
}

}  // namespace

bool Checkpoint::IsIn(const std::string& folder) {
  for (const char* name : {kWeightsFile, kIndexFile}) {
    if (PathExists(Concat(folder, "/", name))) return true;
  }
  std::error_code ignored;  // a folder that can't be read has no config.json either
  for (const auto& item : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = item.path().filename();
    if (!name.starts_with("pytorch_model") || !name.ends_with(".bin")) continue;
    Fail(folder,
         Concat("has weights in ", name, " only, which isn't read because reading it would run ",
                "code in it; convert it to safetensors, with Python's transformers for example: ",
                "GPTNeoXForCausalLM.from_pretrained(DIR).save_pretrained(OTHER_DIR)"));
  }
  return false;
}

Checkpoint::Checkpoint(const std::string& path, const Config& config) : path_(EntryPoint(path)) {
  Stored stored;
  (path_.ends_with(kIndexFile) ? AddShards : AddSingle)(path_, files_, stored);
  std::vector<TensorSpec> specs = ModelTensors(config);
  const bool aliased = stored.contains(std::string(kHeadAlias));
  if (aliased && stored.contains(std::string(kHead))) {
    Fail(path_, Concat("has both '", kHead, "' and '", kHeadAlias, "'; remove one"));
  }
  const std::string stored_head(aliased ? kHeadAlias : kHead);
  if (config.tie_word_embeddings && stored.contains(stored_head)) {
    specs.push_back({std::string(kHead), {config.vocab_size, config.hidden_size}});
  }
  for (const TensorSpec& spec : specs) {
    const std::string stored_name = spec.name == kHead ? stored_head : spec.name;
    const auto found = stored.find(stored_name);
    if (found == stored.end()) {
      Fail(path_, Concat("tensor '", spec.name, "' of shape ", ShapeText(spec.shape),
                         " is missing; does config.json belong to this file?"));
    }
    const Safetensors& file = *found->second;
    CheckTensor(file.path(), stored_name, spec, file.tensors().at(stored_name));
    places_[spec.name] = {&file, stored_name};
  }
  for (const auto& [name, file] : stored) {
    const bool known = places_.contains(name == kHeadAlias ? std::string(kHead) : name);
    if (!known && !IsOldBuffer(name, config.num_hidden_layers)) {
      Fail(file->path(),
           Concat("tensor '", name, "' of shape ", ShapeText(file->tensors().at(name).shape),
                  " is unknown to the model that config.json describes"));
    }
  }
  if (config.tie_word_embeddings && places_.contains(std::string(kHead))) CheckTiedHead();
}

const Checkpoint::Place& Checkpoint::Find(const std::string& name) const {
  const auto found = places_.find(name);
  ZEROD_CHECK(found != places_.end(), "no tensor ", name, " in ", path_);
  return found->second;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : places_) names.push_back(name);
  return names;
}

const std::string& Checkpoint::stored_name(const std::string& name) const {
  return Find(name).stored_name;
}

DType Checkpoint::stored_dtype(const std::string& name) const {
  const Place& place = Find(name);
  return StoredDType(place.file->tensors().at(place.stored_name).dtype);
}

FileRange Checkpoint::Locate(const std::string& name) const {
  const Place& place = Find(name);
  std::error_code failure;
  const std::filesystem::path path = std::filesystem::canonical(place.file->path(), failure);
  if (failure) {
    throw Error(ErrorCode::kNotFound,
                Concat("cannot find ", place.file->path(), " any more: ", failure.message()));
  }
  return {path.string(), static_cast<int64_t>(place.file->OffsetBytes(place.stored_name)),
          stored_dtype(name)};
}

void Checkpoint::Read(const std::string& name, uint64_t first_index, std::span<float> out) const {
  const Place& place = Find(name);
  place.file->Read(place.stored_name, first_index, out);
}

void Checkpoint::CheckTiedHead() const {
  constexpr size_t kPartNumel = 1 << 18;
  const Place& place = Find(std::string(kHead));
  const Safetensors::Entry& entry = place.file->tensors().at(place.stored_name);
  const auto numel = static_cast<size_t>(entry.shape[0] * entry.shape[1]);
  std::vector<float> embedding(std::min(numel, kPartNumel));
  std::vector<float> head(embedding.size());
  for (size_t first = 0; first < numel; first += kPartNumel) {
    const size_t count = std::min(numel - first, kPartNumel);
    Read(std::string(kEmbedding), first, std::span(embedding).first(count));
    Read(std::string(kHead), first, std::span(head).first(count));
    if (std::memcmp(embedding.data(), head.data(), count * sizeof(float)) == 0) continue;
    Fail(path_, Concat("'", place.stored_name, "' differs from '", kEmbedding,
                       "', but config.json ties them (tie_word_embeddings)"));
  }
}

}  // namespace zerod::neox
