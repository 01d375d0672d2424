#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "worker/neox/sampling.h"
#include "worker/neox/token_file.h"

namespace zerod::neox {

struct DataOptions {
  std::string path;
  int token_bytes = 1;         // 1: a text whose bytes are the tokens; 2 or 4: little-endian tokens
  std::string eval_path = {};  // of the same kind, for evaluation; empty: none
  int64_t vocab_size = 0;
  int64_t seq = 0;        // T, tokens per sample
  bool hold_out = false;  // keep the last tenth of `path` for evaluation, out of training
  std::optional<uint64_t> shuffle_seed = {};  // permutes the training samples; off: in file order
  /// The token behind each document. If set, the token that follows it isn't asked of the model: a
  /// target whose input is this token doesn't count. The end itself does.
  std::optional<int64_t> masked_end = {};
};

/// Target of a position that doesn't count.
inline constexpr int64_t kUncounted = -1;

/// Input and target of the model, [count, T] int64: the target is the input one token later, or
/// kUncounted.
struct TokenBatch {
  at::Tensor input;
  at::Tensor target;
};

/// How many targets of a batch count.
int64_t CountTargets(const at::Tensor& target);

/// Samples of a token file. The constructor reads the files once and checks every token; batches
/// are read from the file when asked for, so that it costs no memory. Throws Error (kNotFound
/// without the file, else kDataLoss) that names the file: those of TokenFile, shorter than one
/// sample, no target that counts. Threads may read at the same time.
class TokenSource {
 public:
  explicit TokenSource(const DataOptions& options);

  /// L: tokens that training uses.
  int64_t train_length() const { return train_length_; }

  /// Tokens of one pass over the training samples: L, or the whole samples in it if shuffled.
  int64_t epoch_tokens() const;

  /// Whole samples for evaluation; 0 without any.
  int64_t eval_samples() const { return eval_samples_; }

  /// Training samples first .. first + count − 1 (FirstSample()), any first >= 0.
  TokenBatch Train(int64_t first, int64_t count) const;

  /// Targets of these training samples that count; reads them if documents are masked.
  int64_t CountTrainTargets(int64_t first, int64_t count) const;

  /// Samples for evaluation; those past the end start again at 0, so that a batch is always full.
  TokenBatch Eval(int64_t first, int64_t count) const;

 private:
  void ReadSample(int64_t position, int64_t* out) const;
  TokenBatch Split(const at::Tensor& tokens) const;
  void RequireTargets() const;

  DataOptions options_;
  TokenFile file_;
  std::optional<TokenFile> eval_file_;
  int64_t train_length_ = 0;
  int64_t eval_begin_ = 0;  // first token for evaluation, in the file that has it
  int64_t eval_samples_ = 0;
  std::optional<Shuffle> shuffle_;
};

}  // namespace zerod::neox
