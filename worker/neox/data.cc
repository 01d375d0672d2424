#include "worker/neox/data.h"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "proto/contract/error.h"

namespace zerod::neox {
namespace {

constexpr int64_t kCheckTokens = 256 * 1024;
constexpr int64_t kHoldOutPart = 10;

[[noreturn]] void Fail(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::kDataLoss, Concat(path, ": ", why));
}

/// Splits [count, T + 1] into input and target.
TokenBatch SplitShifted(const at::Tensor& tokens, int64_t seq) {
  return {tokens.narrow(1, 0, seq).contiguous(), tokens.narrow(1, 1, seq).contiguous()};
}

}  // namespace

TokenSource::TokenSource(const DataOptions& options) : options_(options), file_(options.path) {
  ZEROD_CHECK(options.seq > 0 && options.vocab_size > 0, "seq ", options.seq, ", vocabulary ",
              options.vocab_size);
  const auto size_bytes = static_cast<int64_t>(file_.size_bytes());
  if (size_bytes == 0) Fail(options.path, "is empty; it must hold tokens");
  if (size_bytes % token_bytes() != 0) {
    Fail(options.path, Concat("has ", size_bytes,
                              " bytes, which is not a whole number of 16-bit "
                              "tokens"));
  }
  length_ = size_bytes / token_bytes();
  const int64_t held_out = options.hold_out ? length_ / kHoldOutPart : 0;
  train_length_ = length_ - held_out;
  if (train_length_ < options.seq + 1 || (options.hold_out && held_out < options.seq + 1)) {
    Fail(options.path,
         Concat("has ", train_length_, " tokens for training",
                options.hold_out ? Concat(" and ", held_out, " for evaluation") : std::string(),
                ", but one sample needs ", options.seq + 1,
                "; use a longer file or a shorter sequence"));
  }
  eval_samples_ = options.hold_out ? (held_out - 1) / options.seq : 0;
  if (options.shuffle_seed) shuffle_.emplace(*options.shuffle_seed, train_length_ / options.seq);
  CheckTokens();
}

void TokenSource::CheckTokens() const {
  std::vector<int64_t> tokens(static_cast<size_t>(std::min(length_, kCheckTokens)));
  for (int64_t position = 0; position < length_; position += kCheckTokens) {
    const int64_t count = std::min(kCheckTokens, length_ - position);
    ReadTokens(position, count, tokens.data());
    for (int64_t i = 0; i < count; ++i) {
      const int64_t token = tokens[static_cast<size_t>(i)];
      if (token < options_.vocab_size) [[likely]]
        continue;
      Fail(options_.path, Concat("token ", token, " at position ", position + i,
                                 " is outside the model's vocabulary of ", options_.vocab_size));
    }
  }
}

void TokenSource::ReadTokens(int64_t position, int64_t count, int64_t* out) const {
  std::vector<unsigned char> raw(static_cast<size_t>(count * token_bytes()));
  file_.ReadAt(static_cast<uint64_t>(position * token_bytes()),
               std::as_writable_bytes(std::span(raw)));
  const unsigned char* in = raw.data();
  if (options_.format == TokenFormat::kText) {
    std::copy(in, in + count, out);
    return;
  }
  for (int64_t i = 0; i < count; ++i) out[i] = in[2 * i] | in[2 * i + 1] << 8;
}

/// A sample wraps around the end of the training part at most once: it isn't longer than that.
void TokenSource::ReadSample(int64_t position, int64_t* out) const {
  const int64_t count = options_.seq + 1;
  const int64_t before_end = std::min(count, train_length_ - position);
  ReadTokens(position, before_end, out);
  if (before_end < count) ReadTokens(0, count - before_end, out + before_end);
}

TokenBatch TokenSource::Train(int64_t first, int64_t count) const {
  const at::Tensor tokens = at::empty({count, options_.seq + 1}, at::kLong);
  auto* out = tokens.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i, out += options_.seq + 1) {
    const int64_t sample = shuffle_ ? shuffle_->At(first + i) : first + i;
    ReadSample(TokenPosition(sample, 0, options_.seq, train_length_), out);
  }
  return SplitShifted(tokens, options_.seq);
}

TokenBatch TokenSource::Eval(int64_t first, int64_t count) const {
  ZEROD_CHECK(eval_samples_ > 0, "nothing was held out of ", options_.path);
  const at::Tensor tokens = at::empty({count, options_.seq + 1}, at::kLong);
  auto* out = tokens.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i, out += options_.seq + 1) {
    const int64_t sample = (first + i) % eval_samples_;
    ReadTokens(train_length_ + sample * options_.seq, options_.seq + 1, out);
  }
  return SplitShifted(tokens, options_.seq);
}

}  // namespace zerod::neox
