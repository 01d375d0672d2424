// Checkpoints of several files with an index, and what a folder may hold instead.

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/scratch_folder.h"
#include "tests/worker/neox/scratch_file.h"
#include "worker/neox/checkpoint.h"
#include "worker/neox/shard_index.h"
#include "worker/neox/tensor_spec.h"

namespace zerod::neox {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kEmbedding = "gpt_neox.embed_in.weight";
constexpr const char* kIndex = "model.safetensors.index.json";

Config Small() {
  Config config;
  config.vocab_size = 5;
  config.hidden_size = 4;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.intermediate_size = 6;
  return config;
}

void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

/// A folder with the model's tensors in two files: element k of a tensor is k + its name's length.
class Shards {
 public:
  Shards() {
    for (const TensorSpec& spec : ModelTensors(Small())) {
      const bool first = spec.name.find("layers.1") == std::string::npos;
      Put(first ? "a.safetensors" : "b.safetensors", spec.name, spec.shape);
    }
  }

  void Put(const std::string& file, const std::string& name, const std::vector<int64_t>& shape) {
    files_[file][name] = shape;
    map_[name] = file;
  }

  json& map() { return map_; }

  std::string Write() const {
    for (const auto& [file, tensors] : files_) WriteFile(folder_.File(file), ContentOf(tensors));
    WriteFile(folder_.File(kIndex), json{{"weight_map", map_}}.dump());
    return folder_.path();
  }

  const ScratchFolder& folder() const { return folder_; }

 private:
  using Tensors = std::map<std::string, std::vector<int64_t>>;

  static std::string ContentOf(const Tensors& tensors) {
    json header;
    std::string data;
    for (const auto& [name, shape] : tensors) {
      const size_t begin = data.size();
      std::vector<float> values(static_cast<size_t>(TensorSpec{name, shape}.numel()));
      for (size_t k = 0; k < values.size(); ++k) values[k] = static_cast<float>(name.size() + k);
      data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
      header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
    }
    return SafetensorsContent(header.dump(), data);
  }

  ScratchFolder folder_;
  std::map<std::string, Tensors> files_;
  json map_;
};

std::string ComplaintAbout(const Shards& shards) {
  const std::string folder = shards.Write();
  return ComplaintOf([&] { const Checkpoint opened(folder, Small()); });
}

TEST(Shards, GiveEveryTensorAndItsPlace) {
  const Shards shards;
  const std::string link = shards.folder().File("link");
  std::filesystem::create_directory_symlink(shards.Write(), link);
  const Checkpoint checkpoint(link, Small());
  EXPECT_EQ(checkpoint.names().size(), ModelTensors(Small()).size());
  for (const TensorSpec& spec : ModelTensors(Small())) {
    std::vector<float> values(static_cast<size_t>(spec.numel()) - 1);
    checkpoint.Read(spec.name, 1, values);
    const FileRange range = checkpoint.Locate(spec.name);
    std::vector<float> raw(values.size());
    std::ifstream file(range.path, std::ios::binary);
    file.seekg(range.offset_bytes + 4);
    file.read(reinterpret_cast<char*>(raw.data()), static_cast<std::streamsize>(4 * raw.size()));
    for (size_t k = 0; k < values.size(); ++k) {
      EXPECT_EQ(values[k], static_cast<float>(spec.name.size() + k + 1)) << spec.name;
      EXPECT_EQ(raw[k], values[k]) << spec.name;
    }
    EXPECT_EQ(range.dtype, DType::kFloat32);
    EXPECT_EQ(range.path, std::filesystem::canonical(range.path));
  }
}

TEST(Shards, AreLeftAloneWhereThereIsASingleFile) {
  Shards shards;
  shards.Put("model.safetensors", "other", {1});
  EXPECT_THAT(ComplaintAbout(shards), HasSubstr("model.safetensors: tensor"));
}

TEST(Shards, MustHaveWhatTheIndexSays) {
  Shards shards;
  shards.map()[kEmbedding] = "b.safetensors";
  EXPECT_THAT(ComplaintAbout(shards),
              AllOf(HasSubstr(kEmbedding), HasSubstr("is in b.safetensors, but it isn't")));
}

TEST(Shards, MustNotHaveATensorTwice) {
  Shards shards;
  shards.Put("b.safetensors", kEmbedding, {5, 4});
  EXPECT_THAT(ComplaintAbout(shards), AllOf(HasSubstr(kEmbedding), HasSubstr("is in a.safetensors"),
                                            HasSubstr("it is in b.safetensors")));
}

TEST(Shards, MustBeListedWhole) {
  Shards shards;
  shards.map().erase(kEmbedding);
  EXPECT_THAT(ComplaintAbout(shards), AllOf(HasSubstr(kEmbedding), HasSubstr("nothing of it")));
}

TEST(Shards, MustHaveTheModelsTensorsOnly) {
  Shards shards;
  shards.Put("b.safetensors", "gpt_neox.layers.2.attention.bias", {1});
  EXPECT_THAT(ComplaintAbout(shards), HasSubstr("gpt_neox.layers.2.attention.bias"));
  shards.map().erase("gpt_neox.layers.2.attention.bias");
}

TEST(Shards, OfWhichOneIsMissingAreNamed) {
  Shards shards;
  const std::string folder = shards.Write();
  std::filesystem::remove(shards.folder().File("b.safetensors"));
  EXPECT_THAT(ComplaintOf([&] { const Checkpoint opened(folder, Small()); }),
              HasSubstr("b.safetensors"));
}

TEST(ShardIndex, NamesOnlyFilesBesideIt) {
  const ScratchFolder folder;
  for (const char* name :
       {"\"../a.safetensors\"", "\"/etc/a.safetensors\"", "\"a.bin\"", "\"\"", "\".safetensors\"",
        "3", "[\"a.safetensors\"]", "\"a\\u0000.safetensors\""}) {
    WriteFile(folder.File("i"), std::string(R"({"weight_map": {"w": )") + name + "}}");
    EXPECT_THAT(ComplaintOf([&] { ReadShardIndex(folder.File("i")); }),
                AllOf(HasSubstr(folder.File("i")), HasSubstr("'w'")))
        << name;
  }
  for (const char* text : {"{}", R"({"weight_map": 3})", R"({"weight_map": {}})", "[]", "{\xff}"}) {
    WriteFile(folder.File("i"), text);
    EXPECT_THAT(ComplaintOf([&] { ReadShardIndex(folder.File("i")); }),
                HasSubstr(folder.File("i")));
  }
}

TEST(ShardIndex, ReadsWhatItWrites) {
  const ScratchFolder folder;
  const std::map<std::string, std::string> files = {{"v", "a.safetensors"}, {"w", "b.safetensors"}};
  WriteFile(folder.File("i"), ShardIndexText(files, 12));
  EXPECT_EQ(ReadShardIndex(folder.File("i")), files);
}

TEST(CheckpointFolder, WithPickledWeightsIsRefusedWithAHint) {
  const ScratchFolder folder;
  EXPECT_FALSE(Checkpoint::IsIn(folder.path()));
  WriteFile(folder.File("pytorch_model-00001-of-00002.bin"), "");
  EXPECT_THAT(ComplaintOf([&] { Checkpoint::IsIn(folder.path()); }),
              AllOf(HasSubstr("pytorch_model-00001-of-00002.bin"), HasSubstr("convert")));
  WriteFile(folder.File(kIndex), "");
  EXPECT_TRUE(Checkpoint::IsIn(folder.path()));
}

TEST(CheckpointFolder, WithALinkThatLeadsNowhereHasWeightsThatCannotBeOpened) {
  const ScratchFolder folder;
  std::filesystem::create_symlink("nowhere", folder.File("model.safetensors"));
  EXPECT_TRUE(Checkpoint::IsIn(folder.path()));
  EXPECT_THAT(ComplaintOf([&] { const Checkpoint opened(folder.path(), Small()); }),
              AllOf(HasSubstr("cannot open"), HasSubstr(folder.File("model.safetensors"))));
}

TEST(CheckpointFolder, WithoutWeightsIsNamed) {
  const ScratchFolder folder;
  EXPECT_THAT(ComplaintOf([&] { const Checkpoint opened(folder.path(), Small()); }),
              AllOf(HasSubstr(folder.path().string()), HasSubstr(kIndex)));
}

}  // namespace
}  // namespace zerod::neox
