#include "worker/train/checkpoint_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <sys/stat.h>
#include <unistd.h>

#include "worker/neox/shard_index.h"

namespace zerod::train {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

std::string ShardName(size_t index, size_t count) {
  char name[64];
  std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

/// Whether an earlier export, or whoever else writes checkpoints in this form, gave this name.
bool IsOfCheckpoint(const std::string& name) {
  if (name == kSingle || name == kIndex) return true;
  size_t index = 0;
  size_t count = 0;
  if (std::sscanf(name.c_str(), "model-%5zu-of-%5zu.", &index, &count) != 2) return false;
  return index > 0 && name == ShardName(index - 1, count);
}

/// What hinders making a file in a folder; 0: nothing.
int FaultOfFolder(const std::string& folder) {
  std::string name = folder + "/.zerod-probe-XXXXXX";
  const int fd = mkstemp(name.data());
  if (fd < 0) return errno;
  close(fd);
  unlink(name.c_str());
  return 0;
}

}  // namespace

void CheckExportFolder(const std::string& folder, const std::string& model_dir, bool writes) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::kInvalidArgument, Concat("--export ", folder, ": ", why));
  };
  struct stat found {};
  struct stat model {};
  const bool exists = stat(folder.c_str(), &found) == 0;
  if (exists && stat(model_dir.c_str(), &model) == 0 && found.st_dev == model.st_dev &&
      found.st_ino == model.st_ino) {
    refuse("that is the folder of --model, whose weights would be replaced; give another folder");
  }
  if (!writes) return;
  if (!exists && errno != ENOENT) refuse(ErrnoText(errno));
  struct stat link {};
  std::string name = folder;
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  if (!exists && lstat(name.c_str(), &link) == 0) refuse("it is a link that leads nowhere");
  const std::string place =
      exists ? folder : std::filesystem::absolute(name).parent_path().string();
  if (const int fault = FaultOfFolder(place); fault != 0) {
    refuse(Concat(place, " isn't a folder that can be written to: ", ErrnoText(fault)));
  }
}

CheckpointFolder::CheckpointFolder(const FolderContent& content) : folder_(content.folder) {
  try {
    MakeFolder();
    AddText(kConfig, content.config);
    AddWeights(content);
  } catch (...) {
    texts_.clear();
    weights_.clear();
    if (made_folder_) rmdir(folder_.c_str());
    throw;
  }
}

CheckpointFolder::~CheckpointFolder() {
  texts_.clear();
  weights_.clear();
  if (made_folder_ && !published_) rmdir(folder_.c_str());
}

void CheckpointFolder::MakeFolder() {
  made_folder_ = mkdir(folder_.c_str(), 0777) == 0;
  if (!made_folder_ && errno != EEXIST) {
    throw neox::WriteError("make the folder", folder_, errno);
  }
  if (!std::filesystem::is_directory(folder_)) {
    throw neox::WriteError("make the folder", folder_, ENOTDIR);
  }
}

void CheckpointFolder::AddText(const std::string& name, const std::string& text) {
  names_.insert(name);
  texts_.push_back(std::make_unique<neox::OutputFile>(PathOf(name), text.size()));
  texts_.back()->WriteAt(0, std::as_bytes(std::span(text)));
}

void CheckpointFolder::AddWeights(const FolderContent& content) {
  const auto files =
      neox::DivideIntoFiles(content.tensors, static_cast<uint64_t>(content.max_file_bytes));
  std::map<std::string, std::string> index;
  int64_t total_bytes = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name = files.size() == 1 ? kSingle : ShardName(i, files.size());
    names_.insert(name);
    weights_.push_back(std::make_unique<neox::SafetensorsWriter>(PathOf(name), files[i]));
    for (const neox::StoredTensor& tensor : files[i]) {
      file_of_[tensor.name] = weights_.back().get();
      index[tensor.name] = name;
      total_bytes += static_cast<int64_t>(tensor.bytes());
    }
  }
  if (files.size() > 1) AddText(kIndex, neox::ShardIndexText(index, total_bytes));
}

void CheckpointFolder::Write(const std::string& tensor, uint64_t first_index,
                             std::span<const std::byte> elements) {
  const auto found = file_of_.find(tensor);
  ZEROD_CHECK(found != file_of_.end(), "no tensor ", tensor, " in ", folder_);
  found->second->Write(tensor, first_index, elements);
}

void CheckpointFolder::Publish() {
  for (const auto& file : weights_) file->Finish();
  for (const auto& file : texts_) file->Sync();
  // From here on only an interruption of the renames could leave old and new files together.
  for (const auto& file : weights_) file->Publish();
  for (const auto& file : texts_) file->Publish();
  published_ = true;
  RemoveStale();
  neox::SyncFolder(folder_);
  if (made_folder_) {
    const std::string parent = std::filesystem::absolute(folder_).parent_path();
    neox::SyncFolder(parent);
  }
}

void CheckpointFolder::RemoveStale() const {
  std::vector<std::string> stale;
  std::error_code ignored;  // what can't be listed can't be removed; the new files are there
  for (const auto& item : std::filesystem::directory_iterator(folder_, ignored)) {
    std::string name = item.path().filename();
    const std::string_view part = neox::OutputFile::kPartSuffix;
    const std::string whole =
        name.ends_with(part) ? name.substr(0, name.size() - part.size()) : name;
    const bool unfinished = whole != name && (IsOfCheckpoint(whole) || whole == kConfig);
    if (unfinished || (IsOfCheckpoint(name) && !names_.contains(name))) stale.push_back(name);
  }
  for (const std::string& name : stale) unlink(PathOf(name).c_str());
}

}  // namespace zerod::train
