#include "worker/neox/token_file.h"

#include <cstdio>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/neox/scratch_file.h"

namespace zerod::neox {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A token file with a description beside it.
class DescribedFile {
 public:
  explicit DescribedFile(const std::string& description) : file_("tokens") {
    std::ofstream(file_.path() + ".json") << description;
  }
  ~DescribedFile() { std::remove((file_.path() + ".json").c_str()); }
  DescribedFile(const DescribedFile&) = delete;
  DescribedFile& operator=(const DescribedFile&) = delete;

  const std::string& path() const { return file_.path(); }

 private:
  ScratchFile file_;
};

TEST(TokenFileInfo, IsEmptyWithoutADescription) {
  const TokenFileInfo info = TokenFileInfo::Read("/nonexistent/tokens.bin");
  EXPECT_FALSE(info.token_bytes || info.token_count || info.document_end);
  EXPECT_EQ(info.vocabulary_path, "");
}

TEST(TokenFileInfo, HoldsWhatTheDescriptionSays) {
  const DescribedFile file(
      R"({"dtype": "uint32", "tokens": 12, "document_end": 0, "vocabulary": "v.bin", "more": 1})");
  const TokenFileInfo info = TokenFileInfo::Read(file.path());
  EXPECT_EQ(info.token_bytes, 4);
  EXPECT_EQ(info.token_count, 12);
  EXPECT_EQ(info.document_end, 0);
  EXPECT_EQ(info.vocabulary_path, testing::TempDir() + "v.bin");
  const DescribedFile none(R"({"dtype": "uint16", "document_end": null})");
  EXPECT_EQ(TokenFileInfo::Read(none.path()).token_bytes, 2);
  EXPECT_FALSE(TokenFileInfo::Read(none.path()).document_end.has_value());
}

TEST(TokenFileInfo, NamesWhatIsWrongWithTheDescription) {
  struct Bad {
    const char* text;
    const char* complaint;
  };
  for (const Bad& bad :
       {Bad{"[]", "not a JSON object"}, Bad{"{", "not valid JSON"},
        Bad{R"({"dtype": "int8"})", "\"int8\"; tokens are uint16 or uint32"},
        Bad{R"({"tokens": -1})", "\"tokens\" is -1"}, Bad{R"({"tokens": 1.5})", "1.5"},
        Bad{R"({"document_end": "<end>"})", "\"document_end\""},
        Bad{R"({"vocabulary": 3})", "a file's name"}}) {
    const DescribedFile file(bad.text);
    EXPECT_THAT(ComplaintOf([&] { TokenFileInfo::Read(file.path()); }),
                AllOf(HasSubstr(file.path() + ".json"), HasSubstr(bad.complaint)));
  }
}

TEST(TokenFile, TokensTakeTwoBytesAsLongAsTheyFit) {
  EXPECT_EQ(UsualTokenBytes(65536), 2);
  EXPECT_EQ(UsualTokenBytes(65537), 4);
}

}  // namespace
}  // namespace zerod::neox
