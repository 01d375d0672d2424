#include "worker/train/checkpoint_folder.h"

#include <filesystem>
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/scratch_folder.h"
#include "worker/neox/safetensors.h"
#include "worker/neox/shard_index.h"

namespace zerod::train {
namespace {

using testing::ElementsAre;

constexpr const char* kIndex = "model.safetensors.index.json";

/// Three tensors of 8, 8 and 16 bytes.
FolderContent Content(const std::string& folder, int64_t max_file_bytes) {
  return {folder,
          "{}",
          {{"a", DType::kFloat32, {2}}, {"b", DType::kFloat32, {2}}, {"c", DType::kFloat32, {4}}},
          max_file_bytes};
}

void WriteAll(CheckpointFolder& folder, float value) {
  for (const auto& [name, numel] : {std::pair{"a", 2}, {"b", 2}, {"c", 4}}) {
    const std::vector<float> values(static_cast<size_t>(numel), value);
    folder.Write(name, 0, std::as_bytes(std::span(values)));
  }
}

void Export(const std::string& folder, int64_t max_file_bytes, float value) {
  CheckpointFolder made(Content(folder, max_file_bytes));
  WriteAll(made, value);
  made.Publish();
}

std::set<std::string> NamesIn(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& item : std::filesystem::directory_iterator(folder)) {
    names.insert(item.path().filename());
  }
  return names;
}

float FirstOf(const std::string& path, const std::string& tensor) {
  std::vector<float> value(1);
  neox::Safetensors(path).Read(tensor, 0, value);
  return value[0];
}

TEST(CheckpointFolder, HasOneFileOrManyWithAnIndex) {
  const ScratchFolder scratch;
  Export(scratch.File("one"), 32, 1);
  EXPECT_THAT(NamesIn(scratch.File("one")), ElementsAre("config.json", "model.safetensors"));
  Export(scratch.File("two"), 20, 2);
  EXPECT_THAT(NamesIn(scratch.File("two")),
              ElementsAre("config.json", "model-00001-of-00002.safetensors",
                          "model-00002-of-00002.safetensors", kIndex));
  const auto index = neox::ReadShardIndex(scratch.File("two/") + kIndex);
  EXPECT_EQ(index.at("b"), "model-00001-of-00002.safetensors");
  EXPECT_EQ(index.at("c"), "model-00002-of-00002.safetensors");
  EXPECT_EQ(FirstOf(scratch.File("two/") + index.at("c"), "c"), 2);
}

TEST(CheckpointFolder, ReplacesAnOlderCheckpointAndLeavesOtherFiles) {
  const ScratchFolder scratch;
  const std::string folder = scratch.File("f");
  Export(folder, 8, 1);
  EXPECT_EQ(NamesIn(folder).size(), 5U);
  std::ofstream(folder + "/tokenizer.json") << "mine";
  std::ofstream(folder + "/model-00001-of-00003.safetensors.zerod-part") << "left by a crash";
  std::ofstream(folder + "/model-1-of-3.safetensors") << "not of this form";
  Export(folder, 32, 2);
  EXPECT_THAT(NamesIn(folder), ElementsAre("config.json", "model-1-of-3.safetensors",
                                           "model.safetensors", "tokenizer.json"));
  EXPECT_EQ(FirstOf(folder + "/model.safetensors", "a"), 2);
}

TEST(CheckpointFolder, LeavesNothingUnlessPublished) {
  const ScratchFolder scratch;
  const std::string folder = scratch.File("f");
  {
    CheckpointFolder made(Content(folder, 8));
    WriteAll(made, 1);
    EXPECT_EQ(NamesIn(folder).size(), 5U);
  }
  EXPECT_FALSE(std::filesystem::exists(folder));
  Export(folder, 32, 1);
  {
    CheckpointFolder made(Content(folder, 8));
    WriteAll(made, 2);
  }
  EXPECT_THAT(NamesIn(folder), ElementsAre("config.json", "model.safetensors"));
  EXPECT_EQ(FirstOf(folder + "/model.safetensors", "a"), 1);
}

TEST(CheckpointFolder, NamesAPlaceWhereNothingCanBeMade) {
  const ScratchFolder scratch;
  std::ofstream(scratch.File("file")) << "x";
  for (const char* name : {"none/f", "file"}) {
    try {
      const CheckpointFolder made(Content(scratch.File(name), 8));
      ADD_FAILURE() << name;
    } catch (const neox::WriteError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(scratch.File(name)));
    }
  }
}

}  // namespace
}  // namespace zerod::train
