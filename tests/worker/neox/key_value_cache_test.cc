#include "worker/neox/key_value_cache.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "proto/contract/error.h"
#include "tests/worker/neox/plain_model.h"

namespace zerod::neox {
namespace {

Config Small() {
  Config config;
  config.vocab_size = 50;
  config.hidden_size = 16;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.intermediate_size = 24;
  config.max_position_embeddings = 12;
  return config;
}

TEST(KeyValueCache, GivesBackAllPositionsSoFar) {
  KeyValueCache cache(Small(), 5);
  const at::Tensor keys = at::randn({1, 2, 5, 8});
  const at::Tensor values = at::randn({1, 2, 5, 8});
  for (const auto& [first, count] : {std::pair{0, 2}, {2, 1}, {3, 2}}) {
    for (const int64_t block : {1, 0}) {
      const auto past = cache.Append(block, keys.narrow(2, first, count).add(block),
                                     values.narrow(2, first, count));
      EXPECT_TRUE(past.key.equal(keys.narrow(2, 0, first + count).add(block)));
      EXPECT_TRUE(past.value.equal(values.narrow(2, 0, first + count)));
    }
    cache.Advance(count);
  }
  EXPECT_EQ(cache.length(), 5);
  cache.Clear();
  const auto past = cache.Append(0, values.narrow(2, 0, 1), keys.narrow(2, 0, 1));
  EXPECT_TRUE(past.key.equal(values.narrow(2, 0, 1)));
}

/// However a sequence is cut, the logits after it are those of one forward.
TEST(Decoding, GivesTheLogitsOfTheWholeSequence) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    PlainModel model(Small(), dtype);
    Config wide = Small();
    model.Initialize(1);
    const c10::NoGradGuard no_grad;
    for (const at::Tensor& parameter : model.Parameters()) parameter.mul_(5);
    const at::Tensor tokens = at::randint(50, {1, 12}, at::kLong);
    const at::Tensor whole = model.Forward(tokens);
    for (const std::vector<int64_t>& cuts :
         {std::vector<int64_t>{12}, {1, 1, 1, 9}, {4, 5, 3}, {11, 1}}) {
      KeyValueCache cache(wide, 12);
      for (const int64_t count : cuts) {
        model.forward().BeginDecoding(cache);
        const at::Tensor logits = model.Forward(tokens.narrow(1, cache.length(), count));
        cache.Advance(count);
        const at::Tensor expected = whole.select(1, cache.length() - 1);
        EXPECT_LT((logits.select(1, 0) - expected).abs().max().item<double>(),
                  dtype == DType::kFloat32 ? 1e-5 : 0.05);
      }
      model.forward().BeginEvaluation();
    }
  }
}

TEST(Decoding, NamesASequenceThatIsTooLong) {
  PlainModel model(Small());
  model.Initialize(1);
  KeyValueCache cache(Small(), 20);
  cache.Advance(10);
  model.forward().BeginDecoding(cache);
  EXPECT_THROW(model.Forward(at::randint(50, {1, 3}, at::kLong)), Error);
}

}  // namespace
}  // namespace zerod::neox
