#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/neox/input_file.h"
#include "worker/neox/sampling.h"

namespace zerod::neox {

/// How a file holds tokens.
enum class TokenFormat {
  kText,    // every byte is a token
  kUint16,  // little-endian 16-bit tokens
};

struct DataOptions {
  std::string path;
  TokenFormat format = TokenFormat::kText;
  int64_t vocab_size = 0;
  int64_t seq = 0;        // T, tokens per sample
  bool hold_out = false;  // keep the last tenth of the file for evaluation, out of training
  std::optional<uint64_t> shuffle_seed = {};  // permutes the training samples; off: in file order
};

/// Input and target of the model, [count, T] int64: the target is the input one token later.
struct TokenBatch {
  at::Tensor input;
  at::Tensor target;
};

/// Samples of a token file. The constructor reads the file once and checks every token; batches are
/// read from the file when asked for, so that it costs no memory. Throws Error (kNotFound without
/// the file, else kDataLoss) that names the file: empty, odd number of bytes, shorter than one
/// sample, a token outside the vocabulary. Threads may read at the same time.
class TokenSource {
 public:
  explicit TokenSource(const DataOptions& options);

  /// L: tokens that training uses.
  int64_t train_length() const { return train_length_; }

  /// Whole samples in the held-out tenth; 0 without one.
  int64_t eval_samples() const { return eval_samples_; }

  /// Training samples first .. first + count − 1 (FirstSample()), any first >= 0.
  TokenBatch Train(int64_t first, int64_t count) const;

  /// Held-out samples; those past the end start again at 0, so that a batch is always full.
  TokenBatch Eval(int64_t first, int64_t count) const;

 private:
  int64_t token_bytes() const { return options_.format == TokenFormat::kText ? 1 : 2; }
  void CheckTokens() const;
  void ReadTokens(int64_t position, int64_t count, int64_t* out) const;
  void ReadSample(int64_t position, int64_t* out) const;

  DataOptions options_;
  InputFile file_;
  int64_t length_ = 0;  // tokens in the file
  int64_t train_length_ = 0;
  int64_t eval_samples_ = 0;
  std::optional<Shuffle> shuffle_;
};

}  // namespace zerod::neox
