#include "worker/train/train_checks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "proto/contract/error.h"
#include "worker/train/figures.h"

namespace zerod::train {
namespace {

constexpr double kAny = std::numeric_limits<double>::max();
constexpr double kEpochsMax = 1e9;

[[noreturn]] void Refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

void RequireBetween(const char* option, double value, double lowest, double highest) {
  if (std::isfinite(value) && value >= lowest && value <= highest) return;
  if (highest == kAny) {
    Refuse(Concat(option, " is ", value, "; it must be a number from ", lowest, " on"));
  }
  Refuse(Concat(option, " is ", value, "; it must be a number from ", lowest, " to ", highest));
}

/// At 1 a moment would never take anything up, and the correction of its bias would divide by 0.
void RequireBeta(const char* option, double value) {
  if (value >= 0 && value < 1) return;
  Refuse(Concat(option, " is ", value, "; it must be a number from 0 to below 1"));
}

void CheckData(const TrainOptions& options) {
  if (!options.epochs) {
    CheckSampleCount(options.steps, options.batch);
  } else {
    RequireBetween("--epochs", *options.epochs, 0, kEpochsMax);
    if (*options.epochs == 0)
      Refuse("--epochs is 0; give a number of passes above 0, or --steps 0");
  }
  if (options.token_bytes != 0 && options.data_is_text) {
    Refuse("--token-bytes needs --tokens: the tokens of --text are its bytes");
  }
  if (options.mask_documents && options.data_is_text && !options.document_end) {
    Refuse("--mask-documents needs --document-end: which byte ends a document?");
  }
}

void CheckOptimizer(const TrainOptions& options) {
  RequireBetween("--lr", options.lr, 0, kAny);
  RequireBetween("--min-lr", options.min_lr, 0, kAny);
  RequireBetween("--weight-decay", options.weight_decay, 0, kAny);
  RequireBetween("--clip", options.clip, 0, kAny);
  RequireBeta("--beta1", options.beta1);
  RequireBeta("--beta2", options.beta2);
  if (!std::isfinite(options.eps) || options.eps <= 0) {
    Refuse(Concat("--eps is ", options.eps, "; it must be a number above 0"));
  }
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
  RequireBetween("--sample-temperature", options.sample.temperature, 0, kAny);
  if (!(options.sample.top_p > 0 && options.sample.top_p <= 1)) {
    Refuse(Concat("--sample-top-p is ", options.sample.top_p,
                  "; it must be a number above 0 and at most 1"));
  }
  if (options.sample.prompt && !options.sample.ids.empty()) {
    Refuse("--sample and --sample-ids exclude each other");
  }
  if (!options.sample.vocabulary_path.empty() && options.data_is_text) {
    Refuse("--vocabulary needs --tokens: the tokens of --text are its bytes");
  }
  if (options.export_dtype && options.export_dir.empty()) {
    Refuse("--export-dtype needs --export DIR");
  }
}

}  // namespace

void CheckSampleCount(int64_t steps, int64_t batch) {
  constexpr int64_t kSamplesMax = int64_t{1} << 62;
  if (steps <= kSamplesMax / batch) return;
  Refuse(Concat(steps, " steps of --batch ", batch, " are more than 2^62 samples; give fewer"));
}

void CheckBatchMemory(const TrainOptions& options, int64_t vocabulary, int64_t memory_bytes) {
  const int64_t samples = options.batch / (options.session.world_size * options.micro_batches);
  const int64_t tokens = samples * options.seq;
  const double logits_bytes = 4.0 * static_cast<double>(tokens) * static_cast<double>(vocabulary);
  if (logits_bytes <= static_cast<double>(memory_bytes)) return;
  Refuse(Concat("--batch ", options.batch, " and --seq ", options.seq, " make micro-batches of ",
                tokens, " tokens; their logits alone take ",
                BytesText(static_cast<int64_t>(std::min(logits_bytes, 9e18))),
                ", but this machine has ", BytesText(memory_bytes),
                "; give smaller ones or more --micro-batches"));
}

void CheckTrainOptions(const TrainOptions& options) {
  CheckData(options);
  CheckOptimizer(options);
  CheckOutput(options);
}

}  // namespace zerod::train
