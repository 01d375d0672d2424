#include "proto/contract/argument.h"

#include <cmath>
#include <functional>
#include <utility>

#include <gtest/gtest.h>

#include "proto/contract/operation.h"

namespace zerod {
namespace {

Operation Block() {
  Operation operation;
  operation.kind = OperationKind::kRegister;
  operation.layer_spec = {
      .name = "block3",
      .tensors = {{.name = "weight", .shape = {4, 4}}, {.name = "bias", .shape = {4}}}};
  return operation;
}

/// How Block() differs from one that is changed.
std::string DifferenceIfBlock(const std::function<void(LayerSpec&)>& change) {
  Operation other = Block();
  change(other.layer_spec);
  EXPECT_NE(FingerprintOf(other).arguments_hash, FingerprintOf(Block()).arguments_hash);
  return FirstDifference(ArgumentsOf(Block()), ArgumentsOf(other));
}

TEST(ArgumentTest, EqualOperationsHaveNoDifference) {
  EXPECT_EQ(FirstDifference(ArgumentsOf(Block()), ArgumentsOf(Block())), "");
  EXPECT_TRUE(ArgumentsOf(Operation()).empty());  // a gather
}

TEST(ArgumentTest, EveryPropertyOfALayerIsNamedWithBothValues) {
  EXPECT_EQ(DifferenceIfBlock([](auto& s) { s.name = "block4"; }), "layer 'block3' and 'block4'");
  EXPECT_EQ(DifferenceIfBlock([](auto& s) { s.tensors.pop_back(); }),
            "layer 'block3' number of tensors 2 and 1");
  EXPECT_EQ(DifferenceIfBlock([](auto& s) { s.reduce_dtype = DType::kBFloat16; }),
            "layer 'block3' dtype of gradients float32 and bfloat16");
  EXPECT_EQ(DifferenceIfBlock([](auto& s) { s.master_dtype = DType::kBFloat16; }),
            "layer 'block3' dtype of masters float32 and bfloat16");
  EXPECT_EQ(DifferenceIfBlock([](auto& s) { s.tensors[1].name = "b"; }),
            "layer 'block3' tensor 1: name 'bias' and 'b'");
  EXPECT_EQ(DifferenceIfBlock([](auto& s) { s.tensors[0].shape[1] = 8; }),
            "layer 'block3' tensor 'weight': shape [4, 4] and [4, 8]");
  EXPECT_EQ(DifferenceIfBlock([](auto& s) { s.tensors[1].dtype = DType::kBFloat16; }),
            "layer 'block3' tensor 'bias': dtype float32 and bfloat16");
  EXPECT_EQ(DifferenceIfBlock([](auto& s) { s.tensors[0].trainable = false; }),
            "layer 'block3' tensor 'weight': gradient on and off (frozen)");
  EXPECT_EQ(DifferenceIfBlock([](auto& s) { s.tensors[0].lr_scale = 0.1F; }),
            "layer 'block3' tensor 'weight': learning-rate multiplier 1 and 0.1");
  EXPECT_EQ(DifferenceIfBlock([](auto& s) { s.tensors[1].decay = false; }),
            "layer 'block3' tensor 'bias': weight decay on and off");
}

TEST(ArgumentTest, NumbersThatDifferInOneBitHaveOtherTexts) {
  Operation one;
  one.kind = OperationKind::kStep;
  Operation other = one;
  other.step.learning_rate = std::nextafter(one.step.learning_rate, 1);
  EXPECT_EQ(FirstDifference(ArgumentsOf(one), ArgumentsOf(other)),
            "learning rate 0.001 and 0.0010000000000000002");
}

TEST(ArgumentTest, EveryArgumentOfAStepIsNamed) {
  Operation one;
  one.kind = OperationKind::kStep;
  const std::pair<std::function<void(Operation&)>, std::string> cases[] = {
      {[](auto& o) { o.step.optimizer = OptimizerKind::kSgd; }, "optimizer AdamW and SGD"},
      {[](auto& o) { o.step.beta1 = 0.5; }, "beta1 0.9 and 0.5"},
      {[](auto& o) { o.step.beta2 = 0.5; }, "beta2 0.95 and 0.5"},
      {[](auto& o) { o.step.eps = 1e-6; }, "eps 1e-08 and 1e-06"},
      {[](auto& o) { o.step.weight_decay = 0.5; }, "weight decay 0 and 0.5"},
      {[](auto& o) { o.step.max_grad_norm = 2; }, "largest gradient norm 0 and 2"},
      {[](auto& o) { o.step.gradient_divisor = 2; }, "gradient divisor 1 and 2"},
      {[](auto& o) {
         o.values = {1, 2};
       },
       "number of values 0 and 2"},
  };
  for (const auto& [change, difference] : cases) {
    Operation other = one;
    change(other);
    EXPECT_EQ(FirstDifference(ArgumentsOf(one), ArgumentsOf(other)), difference);
  }
}

TEST(ArgumentTest, AnImportNamesFileAndPlace) {
  Operation one;
  one.kind = OperationKind::kImport;
  one.import_from = {{.path = "/m/a", .offset_bytes = 8}, {.path = "/m/b", .offset_bytes = 16}};
  Operation other = one;
  other.import_from[1].offset_bytes = 24;
  EXPECT_EQ(FirstDifference(ArgumentsOf(one), ArgumentsOf(other)),
            "tensor 1: first byte 16 and 24");
  other.import_from[0].path = "/n/a";
  EXPECT_EQ(FirstDifference(ArgumentsOf(one), ArgumentsOf(other)), "tensor 0: file /m/a and /n/a");
  other.import_from.pop_back();
  EXPECT_EQ(FirstDifference(ArgumentsOf(one), ArgumentsOf(other)), "number of tensors 2 and 1");
}

TEST(ArgumentTest, TextsOfALargeLayerAreCut) {
  Operation large = Block();
  for (int i = 0; i < 10'000; ++i) {
    large.layer_spec.tensors.push_back({.name = "tensor" + std::to_string(i), .shape = {1}});
  }
  size_t bytes = 0;
  for (const Argument& argument : ArgumentsOf(large)) {
    bytes += argument.what.size() + argument.value.size();
  }
  EXPECT_GE(bytes, kArgumentBytesMax);
  EXPECT_LE(bytes, kArgumentBytesMax + 200);
}

}  // namespace
}  // namespace zerod
