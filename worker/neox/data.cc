#include "worker/neox/data.h"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "proto/contract/error.h"

namespace zerod::neox {
namespace {

constexpr int64_t kHoldOutPart = 10;

void RequireSample(const TokenFile& file, int64_t tokens, const char* use, int64_t seq) {
  if (tokens > seq) return;
  throw Error(ErrorCode::kDataLoss,
              Concat(file.path(), ": has ", tokens, " tokens for ", use, ", but one sample needs ",
                     seq + 1, "; use a longer file or a shorter sequence"));
}

}  // namespace

int64_t CountTargets(const at::Tensor& target) {
  const int64_t* first = target.const_data_ptr<int64_t>();
  return std::count_if(first, first + target.numel(), [](int64_t id) { return id != kUncounted; });
}

TokenSource::TokenSource(const DataOptions& options)
    : options_(options), file_(options.path, options.token_bytes) {
  ZEROD_CHECK(options.seq > 0 && options.vocab_size > 0, "seq ", options.seq, ", vocabulary ",
              options.vocab_size);
  ZEROD_CHECK(!options.hold_out || options.eval_path.empty(), "two kinds of held-out tokens");
  const int64_t held_out = options.hold_out ? file_.length() / kHoldOutPart : 0;
  train_length_ = file_.length() - held_out;
  RequireSample(file_, train_length_, "training", options.seq);
  file_.CheckVocabulary(options.vocab_size);
  if (options.shuffle_seed) shuffle_.emplace(*options.shuffle_seed, train_length_ / options.seq);
  if (options.hold_out) {
    RequireSample(file_, held_out, "evaluation", options.seq);
    eval_begin_ = train_length_;
    eval_samples_ = (held_out - 1) / options.seq;
  } else if (!options.eval_path.empty()) {
    eval_file_.emplace(options.eval_path, options.token_bytes);
    RequireSample(*eval_file_, eval_file_->length(), "evaluation", options.seq);
    eval_file_->CheckVocabulary(options.vocab_size);
    eval_samples_ = (eval_file_->length() - 1) / options.seq;
  }
  if (options.masked_end) RequireTargets();
}

/// Without a target that counts there is neither a loss nor a gradient.
void TokenSource::RequireTargets() const {
  const auto require = [&](const TokenFile& file, int64_t samples, const char* use,
                           const auto& batch_of) {
    for (int64_t sample = 0; sample < samples; ++sample) {
      if (CountTargets(batch_of(sample).target) > 0) return;
    }
    throw Error(ErrorCode::kDataLoss,
                Concat(file.path(), ": every token for ", use, " is the end of a document, ",
                       *options_.masked_end, ", and what follows that isn't asked of the model; ",
                       "use another file or another token as the end"));
  };
  require(file_, (epoch_tokens() + options_.seq - 1) / options_.seq, "training",
          [&](int64_t sample) { return Train(sample, 1); });
  if (eval_samples_ == 0) return;
  require(eval_file_ ? *eval_file_ : file_, eval_samples_, "evaluation",
          [&](int64_t sample) { return Eval(sample, 1); });
}

int64_t TokenSource::epoch_tokens() const {
  return shuffle_ ? train_length_ / options_.seq * options_.seq : train_length_;
}

/// A sample wraps around the end of the training part at most once: it isn't longer than that.
void TokenSource::ReadSample(int64_t position, int64_t* out) const {
  const int64_t count = options_.seq + 1;
  const int64_t before_end = std::min(count, train_length_ - position);
  file_.Read(position, before_end, out);
  if (before_end < count) file_.Read(0, count - before_end, out + before_end);
}

/// Splits [count, T + 1] into input and target.
TokenBatch TokenSource::Split(const at::Tensor& tokens) const {
  // Copies, also where a single sample would be contiguous as it lies: targets are changed below.
  TokenBatch batch{tokens.narrow(1, 0, options_.seq).clone(at::MemoryFormat::Contiguous),
                   tokens.narrow(1, 1, options_.seq).clone(at::MemoryFormat::Contiguous)};
  if (!options_.masked_end) return batch;
  const int64_t* input = batch.input.const_data_ptr<int64_t>();
  auto* target = batch.target.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < batch.input.numel(); ++i) {
    if (input[i] == *options_.masked_end) target[i] = kUncounted;
  }
  return batch;
}

TokenBatch TokenSource::Train(int64_t first, int64_t count) const {
  const at::Tensor tokens = at::empty({count, options_.seq + 1}, at::kLong);
  auto* out = tokens.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i, out += options_.seq + 1) {
    const int64_t sample = shuffle_ ? shuffle_->At(first + i) : first + i;
    ReadSample(TokenPosition(sample, 0, options_.seq, train_length_), out);
  }
  return Split(tokens);
}

int64_t TokenSource::CountTrainTargets(int64_t first, int64_t count) const {
  if (!options_.masked_end) return count * options_.seq;
  int64_t counted = 0;
  for (int64_t i = 0; i < count; ++i) counted += CountTargets(Train(first + i, 1).target);
  return counted;
}

TokenBatch TokenSource::Eval(int64_t first, int64_t count) const {
  ZEROD_CHECK(eval_samples_ > 0, "nothing was held out of ", options_.path);
  const TokenFile& file = eval_file_ ? *eval_file_ : file_;
  const at::Tensor tokens = at::empty({count, options_.seq + 1}, at::kLong);
  auto* out = tokens.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i, out += options_.seq + 1) {
    const int64_t sample = (first + i) % eval_samples_;
    file.Read(eval_begin_ + sample * options_.seq, options_.seq + 1, out);
  }
  return Split(tokens);
}

}  // namespace zerod::neox
