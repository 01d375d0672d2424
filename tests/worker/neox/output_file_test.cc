#include "worker/neox/output_file.h"

#include <cerrno>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/file_size_limit.h"
#include "tests/support/scratch_folder.h"

namespace zerod::neox {
namespace {

using testing::HasSubstr;

std::string ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

size_t FilesIn(const ScratchFolder& folder) {
  const std::filesystem::directory_iterator items(folder.path());
  return static_cast<size_t>(std::distance(begin(items), end(items)));
}

TEST(OutputFile, AppearsWholeWhenPublished) {
  const ScratchFolder folder;
  const std::string path = folder.File("a");
  OutputFile file(path, 6);
  file.WriteAt(3, BytesOf("def"));
  file.WriteAt(0, BytesOf("abc"));
  EXPECT_FALSE(std::filesystem::exists(path));
  file.Sync();
  file.Publish();
  SyncFolder(folder.path());
  EXPECT_EQ(ContentOf(path), "abcdef");
  EXPECT_EQ(FilesIn(folder), 1U);
}

TEST(OutputFile, LeavesTheOlderOneUnlessPublished) {
  const ScratchFolder folder;
  const std::string path = folder.File("a");
  std::ofstream(path) << "old";
  {
    OutputFile file(path, 3);
    file.WriteAt(0, BytesOf("new"));
    file.Sync();
  }
  EXPECT_EQ(ContentOf(path), "old");
  EXPECT_EQ(FilesIn(folder), 1U);
}

TEST(OutputFile, SaysAtOnceThatItsSizeIsTooMuch) {
  const ScratchFolder folder;
  const FileSizeLimit limit(100'000);
  try {
    const OutputFile file(folder.File("a"), 100'001);
    ADD_FAILURE() << "no error";
  } catch (const WriteError& error) {
    EXPECT_EQ(error.reason(), EFBIG);
    EXPECT_THAT(error.what(), HasSubstr(folder.File("a")));
    EXPECT_THAT(error.what(), HasSubstr("File too large"));
  }
  EXPECT_EQ(FilesIn(folder), 0U);
}

TEST(OutputFile, NamesAFolderThatCannotBeWrittenTo) {
  const ScratchFolder folder;
  try {
    const OutputFile file(folder.File("none/a"), 1);
    ADD_FAILURE() << "no error";
  } catch (const WriteError& error) {
    EXPECT_EQ(error.reason(), ENOENT);
    EXPECT_THAT(error.what(), HasSubstr("none/a"));
  }
}

TEST(OutputFile, DoesNotFollowALinkLeftInItsPlace) {
  const ScratchFolder folder;
  std::ofstream(folder.File("victim")) << "mine";
  std::filesystem::create_symlink(folder.File("victim"), folder.File("a.zerod-part"));
  EXPECT_THROW(OutputFile(folder.File("a"), 1), WriteError);
  EXPECT_EQ(ContentOf(folder.File("victim")), "mine");
}

}  // namespace
}  // namespace zerod::neox
