#include "server/store/model_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "proto/contract/error.h"

namespace zerod {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// An allowed folder "models" beside a forbidden "models-secret".
class ModelFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "zerod-model-file-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    for (const char* name : {"models", "models-secret"}) {
      fs::create_directory(folder_ / name);
      std::ofstream(folder_ / name / "weights") << "0123456789";
    }
    root_ = folder_ / "models";
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string ReadAll(const fs::path& path, std::vector<std::string> roots = {}) const {
    if (roots.empty()) roots = {root_};
    const ModelFile file(path, roots);
    std::string content(file.size_bytes(), '?');
    file.Read(0, std::as_writable_bytes(std::span(content)));
    return content;
  }

  struct Refusal {
    std::optional<ErrorCode> code;
    std::string message = "(accepted)";
  };
  Refusal RefusalOf(const fs::path& path) const {
    try {
      ReadAll(path);
    } catch (const Error& error) {
      EXPECT_EQ(ExitCode(error.code()), 5);  // bad model or data
      return {error.code(), error.what()};
    }
    return {};
  }

  fs::path folder_;
  fs::path root_;
};

TEST_F(ModelFileTest, ReadsAnyRangeOfAFileBelowARoot) {
  fs::create_directories(root_ / "a/b");
  fs::copy(root_ / "weights", root_ / "a/b/weights");
  const ModelFile file(root_ / "a/b/weights", {"/nonexistent", root_});
  EXPECT_EQ(file.size_bytes(), 10);
  std::string part = "....";
  file.Read(6, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "6789");
}

TEST_F(ModelFileTest, LinksAreFollowedAsLongAsTheyStayBelowARoot) {
  fs::create_symlink(root_ / "weights", root_ / "good");
  fs::create_symlink(folder_ / "models-secret/weights", root_ / "bad");
  fs::create_directory_symlink(folder_ / "models-secret", root_ / "bad-folder");
  fs::create_directory_symlink(root_, folder_ / "alias");
  EXPECT_EQ(ReadAll(root_ / "good"), "0123456789");
  EXPECT_EQ(ReadAll(folder_ / "alias/weights"), "0123456789");
  EXPECT_EQ(ReadAll(root_ / "weights", {folder_ / "alias"}), "0123456789");
  for (const fs::path& path :
       {root_ / "bad", root_ / "bad-folder/weights", root_ / "../models-secret/weights",
        folder_ / "models-secret/weights", fs::path("/etc/passwd")}) {
    const Refusal refusal = RefusalOf(path);
    EXPECT_EQ(refusal.code, ErrorCode::kFailedPrecondition) << path;
    EXPECT_THAT(refusal.message, AllOf(HasSubstr("outside of zerod's --model-root"),
                                       HasSubstr(root_.string() + ")")));
  }
}

TEST_F(ModelFileTest, OnlyRegularFilesAreRead) {
  ASSERT_EQ(mkfifo((root_ / "fifo").c_str(), 0600), 0);
  fs::create_directory(root_ / "folder");
  for (const char* name : {"fifo", "folder"}) {  // a FIFO without a writer would block
    const Refusal refusal = RefusalOf(root_ / name);
    EXPECT_EQ(refusal.code, ErrorCode::kFailedPrecondition);
    EXPECT_THAT(refusal.message, HasSubstr("no regular file")) << name;
  }
}

TEST_F(ModelFileTest, AMissingFileIsNotFound) {
  fs::create_symlink(root_ / "nothing", root_ / "dangling");
  for (const char* name : {"nothing", "weights/below-a-file", "dangling"}) {
    const Refusal refusal = RefusalOf(root_ / name);
    EXPECT_EQ(refusal.code, ErrorCode::kNotFound) << name;
    EXPECT_THAT(refusal.message, HasSubstr("the same path on every node"));
  }
}

TEST_F(ModelFileTest, WithoutRootsNothingIsRead) {
  try {
    const ModelFile file(root_ / "weights", {});
    ADD_FAILURE() << "it was read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("started without --model-root"));
  }
}

TEST_F(ModelFileTest, AFileThatIsCutAfterItWasOpenedIsAnError) {
  const ModelFile file(root_ / "weights", {root_});
  fs::resize_file(root_ / "weights", 4);
  std::string part = "......";
  try {
    file.Read(2, std::as_writable_bytes(std::span(part)));
    ADD_FAILURE() << "read " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    EXPECT_THAT(error.what(), HasSubstr("ends at byte 4 now and had 10"));
  }
}

}  // namespace
}  // namespace zerod
