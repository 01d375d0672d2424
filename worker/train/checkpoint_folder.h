#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "worker/neox/output_file.h"
#include "worker/neox/safetensors_writer.h"

namespace zerod::train {

/// What a folder is to hold.
struct FolderContent {
  std::string folder;  ///< made if it isn't there; its parent must exist
  std::string config;  ///< text of config.json
  std::vector<neox::StoredTensor> tensors;
  int64_t max_file_bytes = 0;  ///< of tensors in one file
};

/// Rank 0 writes an export after all the training; what can be known of its folder is said before.
/// Throws Error(kInvalidArgument): it is `model_dir` itself, whatever its name, whose weights would
/// be replaced; or, where this rank `writes`, nothing can be made in it, or beside it if it isn't
/// there. Leaves nothing behind.
void CheckExportFolder(const std::string& folder, const std::string& model_dir, bool writes);

/// A checkpoint in the making: config.json and model.safetensors, or several files with an index.
/// Until Publish everything lies under other names; if the object goes before, all of it goes, the
/// folder too if it was made here. Failures throw neox::WriteError.
class CheckpointFolder {
 public:
  /// Opens all files and takes their room on the disk.
  explicit CheckpointFolder(const FolderContent& content);
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  /// See SafetensorsWriter::Write.
  void Write(const std::string& tensor, uint64_t first_index, std::span<const std::byte> elements);

  /// All tensors have been written: puts everything on the disk, gives the files their names and
  /// removes weights of an older checkpoint that have none of these names.
  void Publish();

 private:
  void MakeFolder();
  void AddText(const std::string& name, const std::string& text);
  void AddWeights(const FolderContent& content);
  void RemoveStale() const;
  std::string PathOf(const std::string& name) const { return folder_ + "/" + name; }

  const std::string folder_;
  bool made_folder_ = false;
  bool published_ = false;
  std::vector<std::unique_ptr<neox::SafetensorsWriter>> weights_;
  std::map<std::string, neox::SafetensorsWriter*> file_of_;  // by tensor
  std::vector<std::unique_ptr<neox::OutputFile>> texts_;
  std::set<std::string> names_;  // of the files in the end
};

}  // namespace zerod::train
