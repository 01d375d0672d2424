#include "worker/neox/data.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/neox/scratch_file.h"

namespace zerod::neox {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Token k of every file here.
int64_t Token(int64_t k) { return k * 7 % 251; }

std::string Text(int64_t length) {
  std::string text;
  for (int64_t k = 0; k < length; ++k) text += static_cast<char>(Token(k));
  return text;
}

std::string Tokens(int64_t length, int64_t factor) {
  std::string bytes;
  for (int64_t k = 0; k < length; ++k) {
    bytes += static_cast<char>(Token(k) * factor & 0xFF);
    bytes += static_cast<char>(Token(k) * factor >> 8);
  }
  return bytes;
}

DataOptions Options(const ScratchFile& file, int64_t seq) {
  return {.path = file.path(), .vocab_size = 256, .seq = seq};
}

TEST(TokenSource, SampleIHasTheTokensOfTheFormula) {
  const ScratchFile file(Text(103));
  const TokenSource source(Options(file, 10));
  ASSERT_EQ(source.train_length(), 103);
  for (const int64_t first : {0, 7, 100, 12345}) {
    const TokenBatch batch = source.Train(first, 6);
    ASSERT_EQ(batch.input.sizes(), (std::vector<int64_t>{6, 10}));
    EXPECT_EQ(batch.input.scalar_type(), at::kLong);
    for (int64_t i = 0; i < 6; ++i) {
      for (int64_t j = 0; j < 10; ++j) {
        const int64_t position = (first + i) * 10 + j;
        EXPECT_EQ(batch.input[i][j].item<int64_t>(), Token(position % 103));
        EXPECT_EQ(batch.target[i][j].item<int64_t>(), Token((position + 1) % 103));
      }
    }
  }
}

TEST(TokenSource, ReadsLittleEndianTokens) {
  const ScratchFile file(Tokens(50, 200));
  DataOptions options = Options(file, 49);
  options.format = TokenFormat::kUint16;
  options.vocab_size = 65536;
  const TokenBatch batch = TokenSource(options).Train(1, 1);
  for (int64_t j = 0; j < 49; ++j) {
    EXPECT_EQ(batch.input[0][j].item<int64_t>(), Token((49 + j) % 50) * 200);
  }
}

TEST(TokenSource, NeverTrainsOnTheLastTenthThatIsHeldOut) {
  const ScratchFile file(Text(205));  // 185 + 20
  DataOptions options = Options(file, 6);
  options.hold_out = true;
  const TokenSource source(options);
  ASSERT_EQ(source.train_length(), 185);
  ASSERT_EQ(source.eval_samples(), 3);
  const TokenBatch train = source.Train(30, 1);
  for (int64_t j = 0; j < 6; ++j) {
    EXPECT_EQ(train.target[0][j].item<int64_t>(), Token((181 + j) % 185));
  }
  const TokenBatch eval = source.Eval(2, 2);  // samples 2 and, once around, 0
  for (int64_t j = 0; j < 6; ++j) {
    EXPECT_EQ(eval.input[0][j].item<int64_t>(), Token(185 + 12 + j));
    EXPECT_EQ(eval.target[1][j].item<int64_t>(), Token(185 + j + 1));
  }
}

TEST(TokenSource, ShuffleReadsTheSameSamplesInAnotherOrder) {
  const ScratchFile file(Text(200));
  DataOptions options = Options(file, 10);
  const TokenBatch plain = TokenSource(options).Train(0, 20);
  options.shuffle_seed = 3;
  const TokenBatch shuffled = TokenSource(options).Train(0, 20);
  std::set<int64_t> plain_starts;
  std::set<int64_t> shuffled_starts;
  for (int64_t i = 0; i < 20; ++i) {
    plain_starts.insert(plain.input[i][0].item<int64_t>());
    shuffled_starts.insert(shuffled.input[i][0].item<int64_t>());
  }
  EXPECT_EQ(plain_starts, shuffled_starts);
  EXPECT_FALSE(plain.input.equal(shuffled.input));
}

TEST(TokenSource, NamesWhatIsWrongWithAFile) {
  struct Bad {
    std::string content;
    TokenFormat format;
    const char* complaint;
  };
  for (const Bad& bad :
       {Bad{"", TokenFormat::kText, "is empty"}, Bad{"abc", TokenFormat::kUint16, "3 bytes"},
        Bad{"ten bytes.", TokenFormat::kText, "one sample needs 11"},
        Bad{"0123456789abcd\xC8xyz", TokenFormat::kText, "token 200 at position 14"},
        Bad{Tokens(12, 1), TokenFormat::kUint16, "outside the model's vocabulary"}}) {
    const ScratchFile file(bad.content);
    DataOptions options = Options(file, 10);
    options.format = bad.format;
    options.vocab_size = bad.format == TokenFormat::kText ? 128 : 50;
    EXPECT_THAT(ComplaintOf([&] { const TokenSource source(options); }),
                AllOf(HasSubstr(file.path()), HasSubstr(bad.complaint)));
  }
  EXPECT_THAT(ComplaintOf([] {
                const TokenSource source({.path = "/nonexistent", .vocab_size = 2, .seq = 1});
              }),
              HasSubstr("/nonexistent"));
}

TEST(TokenSource, RefusesAHeldOutPartThatIsShorterThanASample) {
  const ScratchFile file(Text(109));
  DataOptions options = Options(file, 10);
  options.hold_out = true;
  EXPECT_THAT(ComplaintOf([&] { const TokenSource source(options); }),
              HasSubstr("10 for evaluation, but one sample needs 11"));
}

}  // namespace
}  // namespace zerod::neox
