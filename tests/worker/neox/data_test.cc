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
  options.token_bytes = 2;
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

TEST(TokenSource, ReadsTokensOfFourBytes) {
  std::string bytes;
  for (int64_t k = 0; k < 20; ++k) {
    for (int byte = 0; byte < 4; ++byte)
      bytes += static_cast<char>((70'000 + k) >> (8 * byte) & 0xFF);
  }
  const ScratchFile file(bytes);
  DataOptions options = Options(file, 5);
  options.token_bytes = 4;
  options.vocab_size = 70'020;
  EXPECT_EQ(TokenSource(options).Train(2, 1).input[0][1].item<int64_t>(), 70'011);
}

TEST(TokenSource, EvaluatesAFileOfItsOwn) {
  const ScratchFile file(Text(103));
  const ScratchFile other(Text(103).substr(50, 25));
  DataOptions options = Options(file, 6);
  options.eval_path = other.path();
  const TokenSource source(options);
  EXPECT_EQ(source.train_length(), 103);
  ASSERT_EQ(source.eval_samples(), 4);
  const TokenBatch eval = source.Eval(1, 1);
  for (int64_t j = 0; j < 6; ++j) {
    EXPECT_EQ(eval.input[0][j].item<int64_t>(), Token(50 + 6 + j));
    EXPECT_EQ(eval.target[0][j].item<int64_t>(), Token(50 + 6 + j + 1));
  }
  options.vocab_size = 200;
  EXPECT_THAT(ComplaintOf([&] { const TokenSource bad(options); }), HasSubstr(file.path()));
}

TEST(TokenSource, DoesNotCountWhatComesBehindTheEndOfADocument) {
  const ScratchFile file("aaEbEEEcdx");
  DataOptions options = Options(file, 9);
  options.masked_end = 'E';
  const TokenSource source(options);
  const TokenBatch batch = source.Train(0, 1);
  std::string found;
  for (int64_t j = 0; j < 9; ++j) {
    const auto target = batch.target[0][j].item<int64_t>();
    found += target == kUncounted ? '?' : static_cast<char>(target);
  }
  EXPECT_EQ(found, "aE?E???dx");  // the end of a document itself counts
  for (int64_t j = 0; j < 9; ++j) {
    EXPECT_EQ(batch.input[0][j].item<int64_t>(), "aaEbEEEcd"[j]);
  }
  EXPECT_EQ(CountTargets(batch.target), 9 - 4);
  EXPECT_EQ(source.CountTrainTargets(0, 1), 9 - 4);
  options.masked_end.reset();
  EXPECT_EQ(TokenSource(options).CountTrainTargets(3, 7), 7 * 9);
}

TEST(TokenSource, RefusesDataInWhichNothingCounts) {
  const std::string ends(30, 'E');
  const ScratchFile all(ends);
  DataOptions options = Options(all, 9);
  options.masked_end = 'E';
  EXPECT_THAT(ComplaintOf([&] { const TokenSource source(options); }),
              AllOf(HasSubstr(all.path()), HasSubstr("every token for training"), HasSubstr("69")));
  const ScratchFile few(ends + "x");
  options = Options(few, 9);
  options.masked_end = 'E';
  EXPECT_NO_THROW(TokenSource{options});
  // What a shuffled pass leaves out isn't trained on.
  options.seq = 10;
  options.shuffle_seed = 3;
  EXPECT_THAT(ComplaintOf([&] { const TokenSource source(options); }), HasSubstr("for training"));
  options.shuffle_seed.reset();
  options.eval_path = all.path();
  EXPECT_THAT(ComplaintOf([&] { const TokenSource source(options); }),
              AllOf(HasSubstr(all.path()), HasSubstr("every token for evaluation")));
  const ScratchFile last(Text(180) + std::string(20, 'E'));
  options = Options(last, 9);
  options.hold_out = true;
  options.masked_end = 'E';
  EXPECT_THAT(ComplaintOf([&] { const TokenSource source(options); }),
              HasSubstr("every token for evaluation"));
}

TEST(TokenSource, AnEpochIsOnePassOverTheTokens) {
  const ScratchFile file(Text(103));
  DataOptions options = Options(file, 10);
  EXPECT_EQ(TokenSource(options).epoch_tokens(), 103);
  options.shuffle_seed = 1;
  EXPECT_EQ(TokenSource(options).epoch_tokens(), 100);
}

TEST(TokenSource, NamesWhatIsWrongWithAFile) {
  struct Bad {
    std::string content;
    int token_bytes;
    const char* complaint;
  };
  for (const Bad& bad : {Bad{"", 1, "is empty"}, Bad{"abc", 2, "3 bytes"},
                         Bad{"abcdef", 4, "32-bit"}, Bad{"ten bytes.", 1, "one sample needs 11"},
                         Bad{"0123456789abcd\xC8xyz", 1, "token 200 at position 14"},
                         Bad{Tokens(12, 1), 2, "outside the model's vocabulary"}}) {
    const ScratchFile file(bad.content);
    DataOptions options = Options(file, 10);
    options.token_bytes = bad.token_bytes;
    options.vocab_size = bad.token_bytes == 1 ? 128 : 50;
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
              HasSubstr("10 tokens for evaluation, but one sample needs 11"));
}

}  // namespace
}  // namespace zerod::neox
