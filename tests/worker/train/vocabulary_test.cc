#include "worker/train/vocabulary.h"

#include <cstdio>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "proto/contract/error.h"

namespace zerod::train {
namespace {

/// The vocabulary of a file with this content, or the text of the Error.
class VocabularyFile : public testing::Test {
 protected:
  void TearDown() override { std::remove(path_.c_str()); }

  Vocabulary Read(const std::string& content) {
    std::ofstream(path_) << content;
    return Vocabulary::Read(path_);
  }
  std::string ComplaintAbout(const std::string& content) {
    try {
      Read(content);
    } catch (const Error& error) {
      EXPECT_EQ(ExitCode(error.code()), 5);
      return error.what();
    }
    return "accepted";
  }

  const std::string path_ = testing::TempDir() + "vocabulary." + std::to_string(getpid());
};

TEST_F(VocabularyFile, HoldsTheBytesOfEachToken) {
  EXPECT_EQ(Read("\n54\n5468\nE282ac\n").tokens(),
            (std::vector<std::string>{"", "T", "Th", "\xE2\x82\xAC"}));
}

TEST_F(VocabularyFile, NamesALineThatIsNoHexadecimal) {
  EXPECT_THAT(ComplaintAbout("54\n5\n"), testing::HasSubstr(path_ + ": line 2: \"5\""));
  EXPECT_THAT(ComplaintAbout("xy\n"), testing::HasSubstr("line 1: \"xy\""));
  EXPECT_THAT(ComplaintAbout(""), testing::HasSubstr("no vocabulary"));
}

TEST_F(VocabularyFile, CutsATextIntoTheLongestTokens) {
  const Vocabulary vocabulary = Read("\n54\n5468\n68\n65\n");
  EXPECT_EQ(vocabulary.Encode("TheT"), (std::vector<int64_t>{2, 4, 1}));
  EXPECT_EQ(vocabulary.Encode(""), std::vector<int64_t>());
  EXPECT_THROW(vocabulary.Encode("The end"), Error);
}

TEST(Vocabulary, OfBytesHasATokenForEach) {
  EXPECT_EQ(Vocabulary::OfBytes().Encode("A\xFF"), (std::vector<int64_t>{65, 255}));
}

TEST(ParseIds, TakesNumbersWithCommasAndBlanks) {
  EXPECT_EQ(ParseIds("5, 16 7"), (std::vector<int64_t>{5, 16, 7}));
  EXPECT_EQ(ParseIds(""), std::vector<int64_t>());
  EXPECT_THROW(ParseIds("5,-1"), Error);
  EXPECT_THROW(ParseIds("5.5"), Error);
}

}  // namespace
}  // namespace zerod::train
