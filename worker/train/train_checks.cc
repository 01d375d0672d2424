#include "worker/train/train_checks.h"

#include <cmath>
#include <limits>

#include "proto/contract/error.h"

namespace zerod::train {
namespace {

constexpr double kAny = std::numeric_limits<double>::max();

[[noreturn]] void Refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

void RequireAtLeast(const char* option, int64_t value, int64_t lowest) {
  if (value < lowest) Refuse(Concat(option, " is ", value, "; it must be at least ", lowest));
}

void RequireBetween(const char* option, double value, double lowest, double highest) {
  if (std::isfinite(value) && value >= lowest && value <= highest) return;
  if (highest == kAny) {
    Refuse(Concat(option, " is ", value, "; it must be a number from ", lowest, " on"));
  }
  Refuse(Concat(option, " is ", value, "; it must be a number from ", lowest, " to ", highest));
}

void CheckData(const TrainOptions& options) {
  RequireAtLeast("--batch", options.batch, 1);
  RequireAtLeast("--seq", options.seq, 1);
  RequireAtLeast("--steps", options.steps, 0);
  RequireAtLeast("--micro-batches", options.micro_batches, 1);
  RequireAtLeast("--document-end", options.document_end.value_or(0), 0);
  if (options.epochs) {
    RequireBetween("--epochs", *options.epochs, 0, kAny);
    if (*options.epochs == 0)
      Refuse("--epochs is 0; give a number of passes above 0, or --steps 0");
  }
  if (options.token_bytes != 0 && options.token_bytes != 2 && options.token_bytes != 4) {
    Refuse(Concat("--token-bytes is ", options.token_bytes, "; tokens have 2 or 4 bytes"));
  }
  if (options.token_bytes != 0 && options.data_is_text) {
    Refuse("--token-bytes needs --tokens: the tokens of --text are its bytes");
  }
  if (options.mask_documents && options.data_is_text && !options.document_end) {
    Refuse("--mask-documents needs --document-end: which byte ends a document?");
  }
}

void CheckOptimizer(const TrainOptions& options) {
  RequireAtLeast("--warmup", options.warmup_steps, 0);
  RequireAtLeast("--decay-steps", options.decay_steps, 0);
  RequireBetween("--lr", options.lr, 0, kAny);
  RequireBetween("--min-lr", options.min_lr, 0, kAny);
  RequireBetween("--weight-decay", options.weight_decay, 0, kAny);
  RequireBetween("--clip", options.clip, 0, kAny);
  RequireBetween("--beta1", options.beta1, 0, 1);
  RequireBetween("--beta2", options.beta2, 0, 1);
  RequireBetween("--eps", options.eps, 0, kAny);
  if (options.min_lr > options.lr) {
    Refuse(Concat("--min-lr is ", options.min_lr, ", more than the ", options.lr, " of --lr"));
  }
  const bool falls = options.decay != Decay::kConstant;
  if (!falls && (options.min_lr > 0 || options.decay_steps > 0)) {
    Refuse(Concat(options.min_lr > 0 ? "--min-lr" : "--decay-steps",
                  " needs --schedule linear or cosine"));
  }
  CheckPatterns(options.rules);
}

void CheckOutput(const TrainOptions& options) {
  RequireAtLeast("--eval-every", options.eval_every, 0);
  RequireAtLeast("--sample-tokens", options.sample.tokens, 1);
  RequireAtLeast("--sample-top-k", options.sample.top_k, 0);
  RequireBetween("--sample-temperature", options.sample.temperature, 0, kAny);
  if (!(options.sample.top_p > 0 && options.sample.top_p <= 1)) {
    Refuse(Concat("--sample-top-p is ", options.sample.top_p,
                  "; it must be a number above 0 and at most 1"));
  }
  if (options.sample.prompt && !options.sample.ids.empty()) {
    Refuse("--sample and --sample-ids exclude each other");
  }
  if (options.export_dtype && options.export_dir.empty()) {
    Refuse("--export-dtype needs --export DIR");
  }
}

}  // namespace

void CheckTrainOptions(const TrainOptions& options) {
  CheckData(options);
  CheckOptimizer(options);
  CheckOutput(options);
  RequireAtLeast("--prefetch", options.prefetch_depth, 0);
  RequireAtLeast("--threads", options.threads, 1);
  if (options.threads > kThreadsMax) {
    Refuse(Concat("--threads is ", options.threads, "; at most ", kThreadsMax, " are possible"));
  }
  if (options.prefetch_depth > std::numeric_limits<int>::max()) {
    Refuse(Concat("--prefetch is ", options.prefetch_depth, "; the model has fewer layers"));
  }
}

}  // namespace zerod::train
