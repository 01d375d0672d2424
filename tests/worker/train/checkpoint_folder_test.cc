#include "worker/train/checkpoint_folder.h"

#include <filesystem>
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/scratch_folder.h"
#include "worker/neox/safetensors.h"
#include "worker/neox/shard_index.h"

namespace zerod::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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

TEST(CheckpointFolder, RemovesWhatAKilledExportLeft) {
  const ScratchFolder scratch;
  const std::string folder = scratch.File("out");
  Export(folder, 32, 1);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    CheckpointFolder made(Content(folder, 16));
    WriteAll(made, 2);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(NamesIn(folder).size(), 2U + 4U);  // beside the older export the parts of the new one
  EXPECT_EQ(FirstOf(folder + "/model.safetensors", "a"), 1);
  Export(folder, 32, 3);
  EXPECT_THAT(NamesIn(folder), ElementsAre("config.json", "model.safetensors"));
  EXPECT_EQ(FirstOf(folder + "/model.safetensors", "a"), 3);
}

TEST(CheckpointFolder, CanBeCheckedBeforeItIsMade) {
  const ScratchFolder scratch;
  const std::string model = scratch.File("model");
  std::filesystem::create_directory(model);
  std::filesystem::create_directory_symlink(model, scratch.File("link"));
  std::filesystem::create_directory_symlink(scratch.File("none"), scratch.File("loose"));
  std::ofstream(scratch.File("file")) << "x";
  const auto refusal = [&](const std::string& folder, bool writes = true) {
    try {
      CheckExportFolder(folder, model, writes);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string("(accepted)");
  };
  for (const std::string& same :
       {model, model + "/", model + "/../model/.", scratch.File("link")}) {
    EXPECT_THAT(refusal(same, false), HasSubstr("that is the folder of --model")) << same;
  }
  EXPECT_THAT(refusal(scratch.File("file")), HasSubstr("Not a directory"));
  EXPECT_THAT(refusal(scratch.File("file/out")), HasSubstr("Not a directory"));
  EXPECT_THAT(refusal(scratch.File("none/out")), HasSubstr("No such file or directory"));
  EXPECT_THAT(refusal(scratch.File("loose")), HasSubstr("a link that leads nowhere"));
  EXPECT_THAT(refusal(scratch.File(std::string(300, 'x'))), HasSubstr("File name too long"));
  EXPECT_THAT(refusal("/proc/out"), HasSubstr("/proc isn't a folder that can be written to"));
  EXPECT_NO_THROW(CheckExportFolder(scratch.File("none/out"), model, false));
  for (const std::string& fine :
       {scratch.File("new"), scratch.File("new/"), scratch.path().string()}) {
    EXPECT_NO_THROW(CheckExportFolder(fine, model, true)) << fine;
  }
  EXPECT_THAT(NamesIn(scratch.path()),
              testing::UnorderedElementsAre("model", "link", "loose", "file"));
}

TEST(CheckpointFolder, NamesAPlaceWhereNothingCanBeMade) {
  const ScratchFolder scratch;
  std::ofstream(scratch.File("file")) << "x";
  for (const char* name : {"none/f", "file"}) {
    try {
      const CheckpointFolder made(Content(scratch.File(name), 8));
      ADD_FAILURE() << name;
    } catch (const neox::WriteError& error) {
      EXPECT_THAT(error.what(), HasSubstr(scratch.File(name)));
    }
  }
}

}  // namespace
}  // namespace zerod::train
