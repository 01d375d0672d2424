#include "worker/train/text_sampler.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <span>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "proto/contract/error.h"
#include "worker/neox/key_value_cache.h"
#include "worker/train/token_draw.h"

namespace zerod::train {
namespace {

[[noreturn]] void Refuse(const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, "sampling: " + why);
}

void Check(const SampleOptions& options, const neox::Config& config) {
  if (!(options.temperature >= 0)) Refuse("the temperature must not be negative");
  if (options.top_k < 0) Refuse("top-k must not be negative");
  if (!(options.top_p > 0 && options.top_p <= 1)) Refuse("top-p must be above 0 and at most 1");
  if (options.context < 0 || options.context > config.max_position_embeddings) {
    Refuse(Concat("the context must be at most the model's ", config.max_position_embeddings,
                  " tokens (max_position_embeddings)"));
  }
}

constexpr int64_t kNoToken = -1;

bool AllFinite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

/// The last `count` ids as a batch of one.
at::Tensor LastIds(const std::vector<int64_t>& ids, int64_t count) {
  const at::Tensor tokens = at::empty({1, count}, at::kLong);
  std::copy(ids.end() - count, ids.end(), tokens.mutable_data_ptr<int64_t>());
  return tokens;
}

/// Feeds a growing sequence to a model, each id once as long as the context lasts.
class Decoder {
 public:
  Decoder(const SampleModel& model, int64_t context)
      : model_(model), cache_(model.config, context) {}
  /// The layers must not keep a cache that is gone.
  ~Decoder() { model_.forward.BeginEvaluation(); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Logits [V] of what follows `ids`, of which the last `fresh` are new since the call before.
  at::Tensor Next(const std::vector<int64_t>& ids, int64_t fresh) {
    int64_t count = std::min(fresh, cache_.capacity());
    if (cache_.length() + count > cache_.capacity()) {
      // Positions are part of what is kept, so the sequence can't be moved: the younger half is
      // computed again and room for the other half of new tokens is there.
      cache_.Clear();
      count = (cache_.capacity() + 1) / 2;
    }
    model_.forward.BeginDecoding(cache_);
    const at::Tensor logits = model_.run(LastIds(ids, count));
    cache_.Advance(count);
    return logits.reshape({-1}).contiguous();
  }

 private:
  const SampleModel& model_;
  neox::KeyValueCache cache_;
};

}  // namespace

void CheckPrompt(const std::vector<int64_t>& prompt, const neox::Config& config) {
  if (prompt.empty()) Refuse("the prompt has no token; give at least one");
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] >= 0 && prompt[i] < config.vocab_size) continue;
    Refuse(Concat("token ", prompt[i], " at place ", i, " of the prompt is outside the model's ",
                  "vocabulary of ", config.vocab_size));
  }
}

SampleModel SampleModelOf(const neox::Config& config, neox::ForwardContext& forward,
                          ShardedSequential& model) {
  return {
      config, forward, [&model](const at::Tensor& ids) { return model.Forward(ids); },
      [&model](int64_t choice) {
        const bool decides = model.session().info().rank == 0;
        return static_cast<int64_t>(model.Sum({decides ? static_cast<double>(choice) : 0.0})[0]);
      }};
}

std::vector<int64_t> SampleTokens(const std::vector<int64_t>& prompt, const SampleOptions& options,
                                  const SampleModel& model) {
  CheckPrompt(prompt, model.config);
  Check(options, model.config);
  const c10::NoGradGuard no_grad;
  const DrawOptions draw{options.temperature, options.top_k, options.top_p};
  std::mt19937_64 random(options.seed);
  Decoder decoder(model,
                  options.context > 0 ? options.context : model.config.max_position_embeddings);
  std::vector<int64_t> ids = prompt;
  auto fresh = static_cast<int64_t>(prompt.size());
  for (int64_t made = 0; made < options.tokens; ++made, fresh = 1) {
    const at::Tensor logits = decoder.Next(ids, fresh);
    const int64_t numel = logits.numel();
    const int64_t allowed = options.vocabulary > 0 ? std::min(options.vocabulary, numel) : numel;
    const std::span<const float> row(logits.const_data_ptr<float>(), static_cast<size_t>(allowed));
    const int64_t token = model.agree(AllFinite(row) ? DrawToken(row, draw, random) : kNoToken);
    if (token == kNoToken) {
      throw Error(ErrorCode::kDataLoss,
                  Concat("sampling: the model's output for new token ", made + 1,
                         " holds values that aren't finite; its weights do too, or are too large"));
    }
    if (token == options.end_token) break;
    ids.push_back(token);
  }
  return {ids.begin() + static_cast<int64_t>(prompt.size()), ids.end()};
}

std::string DecodeTokens(const std::vector<int64_t>& ids,
                         const std::vector<std::string>& vocabulary) {
  std::string text;
  for (const int64_t id : ids) {
    const bool known = id >= 0 && id < static_cast<int64_t>(vocabulary.size());
    text += known ? vocabulary[static_cast<size_t>(id)] : Concat("<", id, ">");
  }
  return text;
}

}  // namespace zerod::train
