#include "server/layout/difference.h"

#include <functional>

#include <gtest/gtest.h>

#include "proto/contract/operation.h"

namespace zerod {
namespace {

LayerSpec Block() {
  return {.name = "block3",
          .tensors = {{.name = "weight", .shape = {4, 4}}, {.name = "bias", .shape = {4}}}};
}

TEST(DifferenceTest, EqualLayersHaveNone) {
  EXPECT_EQ(FirstDifference(Block(), Block()), std::nullopt);
  EXPECT_EQ(HashOf(Block()), HashOf(Block()));
}

TEST(DifferenceTest, EveryPropertyIsNamedWithBothValuesAndChangesTheHash) {
  const std::vector<std::pair<std::function<void(LayerSpec&)>, std::string>> cases = {
      {[](LayerSpec& s) { s.name = "block4"; }, "layer: name 'block3' here, 'block4' in the job"},
      {[](LayerSpec& s) {
         s.tensors[0].shape = {4, 8};
       },
       "layer 'block3' tensor 'weight': shape [4, 4] here, [4, 8] in the job"},
      {[](LayerSpec& s) { s.tensors[1].shape = {}; },
       "layer 'block3' tensor 'bias': shape [4] here, [] in the job"},
      {[](LayerSpec& s) { s.tensors[1].name = "b"; },
       "layer 'block3' tensor 1: name 'bias' here, 'b' in the job"},
      {[](LayerSpec& s) { s.tensors[0].dtype = DType::kBFloat16; },
       "layer 'block3' tensor 'weight': dtype float32 here, bfloat16 in the job"},
      {[](LayerSpec& s) { s.tensors[0].trainable = false; },
       "layer 'block3' tensor 'weight': trainable here, frozen in the job"},
      {[](LayerSpec& s) { s.tensors[0].lr_scale = 0.5f; },
       "layer 'block3' tensor 'weight': learning-rate multiplier 1 here, 0.5 in the job"},
      {[](LayerSpec& s) { s.tensors[1].decay = false; },
       "layer 'block3' tensor 'bias': weight decay on here, weight decay off in the job"},
      {[](LayerSpec& s) { s.tensors.pop_back(); },
       "layer 'block3': number of tensors 2 here, 1 in the job"},
      {[](LayerSpec& s) { s.reduce_dtype = DType::kBFloat16; },
       "layer 'block3': dtype of gradients float32 here, bfloat16 in the job"},
      {[](LayerSpec& s) { s.master_dtype = DType::kBFloat16; },
       "layer 'block3': dtype of masters float32 here, bfloat16 in the job"},
  };
  for (const auto& [change, message] : cases) {
    LayerSpec in_job = Block();
    change(in_job);
    EXPECT_EQ(FirstDifference(Block(), in_job), message);
    EXPECT_NE(HashOf(Block()), HashOf(in_job)) << message;
  }
}

TEST(DifferenceTest, TheFirstOfSeveralIsNamed) {
  LayerSpec in_job = Block();
  in_job.tensors[1].shape = {5};
  in_job.tensors.push_back({.name = "extra", .shape = {1}});
  EXPECT_EQ(FirstDifference(Block(), in_job),
            "layer 'block3' tensor 'bias': shape [4] here, [5] in the job");
}

}  // namespace
}  // namespace zerod
