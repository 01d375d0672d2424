#pragma once

#include <cstdint>

namespace zerod::neox {

// Which tokens a step reads; nothing here but index arithmetic. Sample i of a text of L tokens is
// the T + 1 tokens (i·T + j) mod L, j = 0 .. T. Step s uses the samples s·B .. s·B + B − 1.

/// How the samples of a step are divided: each dp rank takes a contiguous part of the batch, each
/// micro-batch a contiguous part of that.
struct BatchShape {
  int64_t batch = 1;          // B, samples per step over all ranks
  int64_t dp_size = 1;        // ranks that share the batch
  int64_t dp_index = 0;       // this rank among them
  int64_t micro_batches = 1;  // per rank and step

  /// Samples in each micro-batch.
  int64_t micro_batch_size() const { return batch / (dp_size * micro_batches); }
};

/// Throws Error(kInvalidArgument) if a number isn't positive or the batch can't be divided evenly.
void CheckBatchShape(const BatchShape& shape);

/// Index of the first sample of a micro-batch of this rank.
int64_t FirstSample(const BatchShape& shape, int64_t step, int64_t micro_batch);

/// Position in the text of token j of a sample. Exact for any non-negative arguments.
int64_t TokenPosition(int64_t sample, int64_t j, int64_t seq, int64_t length);

/// Steps of `step_tokens` tokens in `epochs` passes (which may be a fraction, above 0) over
/// `epoch_tokens`, the last one begun if not filled.
int64_t StepsOfEpochs(double epochs, int64_t epoch_tokens, int64_t step_tokens);

/// What a rank evaluates in one round. Every rank runs every round, so that all make the same
/// collective calls; rows past the end of the held-out samples don't count.
struct EvalPart {
  int64_t first = 0;  // index of the first held-out sample
  int64_t valid = 0;  // samples that count: the first `valid` of a micro-batch, maybe none
};

/// Rounds that cover `samples` held-out samples, micro_batch_size() for each rank and round.
int64_t EvalRounds(const BatchShape& shape, int64_t samples);
EvalPart EvalPartOf(const BatchShape& shape, int64_t samples, int64_t round);

/// A permutation of 0, 1, 2, ... that keeps each run of `count` indices (one pass over the text)
/// together and orders every run differently. Needs no memory. A plain value.
class Shuffle {
 public:
  Shuffle(uint64_t seed, int64_t count);

  int64_t At(int64_t index) const;

 private:
  /// One bijection of [0, 4^half_bits_), chosen by the pass.
  uint64_t Mix(uint64_t pass, uint64_t value) const;

  uint64_t seed_;
  uint64_t count_;
  int half_bits_;
};

}  // namespace zerod::neox
