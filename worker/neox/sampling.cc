#include "worker/neox/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "proto/contract/error.h"

namespace zerod::neox {
namespace {

constexpr int kFeistelRounds = 6;

/// The finalizer of MurmurHash3: every bit of the input moves every bit of the result.
uint64_t Scramble(uint64_t value) {
  value = (value ^ (value >> 33)) * 0xff51afd7ed558ccd;
  value = (value ^ (value >> 33)) * 0xc4ceb9fe1a85ec53;
  return value ^ (value >> 33);
}

}  // namespace

void CheckBatchShape(const BatchShape& shape) {
  ZEROD_CHECK(shape.dp_size > 0 && shape.dp_index >= 0 && shape.dp_index < shape.dp_size,
              "dp index ", shape.dp_index, " of ", shape.dp_size);
  if (shape.batch < 1 || shape.micro_batches < 1) {
    throw Error(ErrorCode::kInvalidArgument, "batch and micro-batches must be at least 1");
  }
  if (shape.batch % shape.dp_size != 0 || shape.batch / shape.dp_size % shape.micro_batches != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("a batch of ", shape.batch, " samples can't be divided evenly among ",
                       shape.dp_size, " ranks x ", shape.micro_batches, " micro-batches"));
  }
}

int64_t FirstSample(const BatchShape& shape, int64_t step, int64_t micro_batch) {
  ZEROD_CHECK(micro_batch >= 0 && micro_batch < shape.micro_batches, "micro-batch ", micro_batch);
  return step * shape.batch + shape.dp_index * (shape.batch / shape.dp_size) +
         micro_batch * shape.micro_batch_size();
}

int64_t TokenPosition(int64_t sample, int64_t j, int64_t seq, int64_t length) {
  // 128 bits: the product outgrows 64 long before a counter of samples does.
  const auto position = static_cast<unsigned __int128>(sample) * static_cast<uint64_t>(seq) +
                        static_cast<uint64_t>(j);
  return static_cast<int64_t>(position % static_cast<uint64_t>(length));
}

int64_t StepsOfEpochs(double epochs, int64_t epoch_tokens, int64_t step_tokens) {
  const double steps =
      std::ceil(epochs * static_cast<double>(epoch_tokens) / static_cast<double>(step_tokens));
  constexpr double kStepsMax = 1e15;
  if (steps <= kStepsMax) return static_cast<int64_t>(steps);
  throw Error(ErrorCode::kInvalidArgument, Concat(epochs, " epochs are more than 1e15 steps"));
}

int64_t EvalRounds(const BatchShape& shape, int64_t samples) {
  const int64_t per_round = shape.dp_size * shape.micro_batch_size();
  return (samples + per_round - 1) / per_round;
}

EvalPart EvalPartOf(const BatchShape& shape, int64_t samples, int64_t round) {
  const int64_t size = shape.micro_batch_size();
  const int64_t first = (round * shape.dp_size + shape.dp_index) * size;
  return {first, std::clamp<int64_t>(samples - first, 0, size)};
}

Shuffle::Shuffle(uint64_t seed, int64_t count)
    : seed_(seed),
      count_(static_cast<uint64_t>(count)),
      half_bits_(std::max<int>(1, (static_cast<int>(std::bit_width(count_ - 1)) + 1) / 2)) {
  ZEROD_CHECK(count > 0, "nothing to shuffle");
}

uint64_t Shuffle::Mix(uint64_t pass, uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t round = 0; round < kFeistelRounds; ++round) {
    const uint64_t key = Scramble(Scramble(seed_ + round) + pass);
    const uint64_t next = left ^ (Scramble(key + right) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

int64_t Shuffle::At(int64_t index) const {
  const uint64_t pass = static_cast<uint64_t>(index) / count_;
  uint64_t value = static_cast<uint64_t>(index) % count_;
  // A bijection of a larger range, followed until it comes back into ours, is one of ours. The
  // range is less than 4 (small counts: 16) times as large, so that takes a few turns.
  do {
    value = Mix(pass, value);
  } while (value >= count_);
  return static_cast<int64_t>(pass * count_ + value);
}

}  // namespace zerod::neox
