#include "proto/contract/operation.h"

#include <functional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace zerod {
namespace {

LayerSpec Linear() {
  return {.name = "block0",
          .tensors = {{.name = "block0.weight", .shape = {32, 16}},
                      {.name = "block0.bias", .shape = {32}, .decay = false}}};
}

template <typename T>
using Changes = std::vector<std::function<void(T&)>>;

TEST(LayerHash, IsTheSameForEqualSpecifications) { EXPECT_EQ(HashOf(Linear()), HashOf(Linear())); }

TEST(LayerHash, DiffersWhateverIsChanged) {
  const Changes<LayerSpec> changes = {
      [](LayerSpec& s) { s.name = "block1"; },
      [](LayerSpec& s) { s.reduce_dtype = DType::kBFloat16; },
      [](LayerSpec& s) { s.master_dtype = DType::kBFloat16; },
      [](LayerSpec& s) { s.tensors.pop_back(); },
      [](LayerSpec& s) { std::swap(s.tensors[0], s.tensors[1]); },
      [](LayerSpec& s) { s.tensors[0].name = "block0.weigh"; },
      [](LayerSpec& s) {
        s.tensors[0].shape = {16, 32};
      },
      [](LayerSpec& s) { s.tensors[0].shape = {512}; },
      [](LayerSpec& s) { s.tensors[1].shape = {}; },
      [](LayerSpec& s) { s.tensors[0].dtype = DType::kFloat16; },
      [](LayerSpec& s) { s.tensors[0].trainable = false; },
      [](LayerSpec& s) { s.tensors[0].lr_scale = 0.5f; },
      [](LayerSpec& s) { s.tensors[0].decay = false; },
  };
  std::set<uint64_t> hashes = {HashOf(Linear())};
  for (const auto& change : changes) {
    LayerSpec spec = Linear();
    change(spec);
    EXPECT_TRUE(hashes.insert(HashOf(spec)).second) << "change " << hashes.size();
  }
}

TEST(LayerHash, DoesNotConfuseTheEndOfOneNameWithTheStartOfTheNext) {
  LayerSpec left{.name = "ab", .tensors = {{.name = "c", .shape = {}}}};
  LayerSpec right{.name = "a", .tensors = {{.name = "bc", .shape = {}}}};
  EXPECT_NE(HashOf(left), HashOf(right));
}

Operation Step() {
  Operation operation;
  operation.ticket = 9;
  operation.kind = OperationKind::kStep;
  operation.values = {1.5, 2.5};
  return operation;
}

TEST(FingerprintOfAStep, DiffersWhateverArgumentIsChanged) {
  const Changes<Operation> changes = {
      [](Operation& o) { o.step.optimizer = OptimizerKind::kSgd; },
      [](Operation& o) { o.step.learning_rate = 2e-3; },
      [](Operation& o) { o.step.beta1 = 0.8; },
      [](Operation& o) { o.step.beta2 = 0.99; },
      [](Operation& o) { o.step.eps = 1e-6; },
      [](Operation& o) { o.step.weight_decay = 0.1; },
      [](Operation& o) { o.step.max_grad_norm = 1.0; },
      [](Operation& o) { o.step.gradient_divisor = 8.0; },
      [](Operation& o) { o.values.push_back(0.0); },
  };
  std::set<uint64_t> hashes = {FingerprintOf(Step()).arguments_hash};
  for (const auto& change : changes) {
    Operation operation = Step();
    change(operation);
    EXPECT_TRUE(hashes.insert(FingerprintOf(operation).arguments_hash).second)
        << "change " << hashes.size();
  }
}

TEST(FingerprintOfAStep, IgnoresWhatEachRankHasForItself) {
  Operation other = Step();
  other.values = {-1.0, 7.0};
  other.private_state = "shuffled data position";
  EXPECT_EQ(FingerprintOf(other), FingerprintOf(Step()));
}

TEST(Fingerprint, TellsTicketsKindsLayersAndVersionsApart) {
  Operation gather;
  gather.ticket = 1;
  gather.layer = 2;
  gather.version = 3;
  const Changes<Operation> changes = {
      [](Operation& o) { o.ticket = 2; },
      [](Operation& o) { o.kind = OperationKind::kRelease; },
      [](Operation& o) { o.layer = 3; },
      [](Operation& o) { o.version = 4; },
  };
  for (const auto& change : changes) {
    Operation other = gather;
    change(other);
    EXPECT_FALSE(FingerprintOf(other) == FingerprintOf(gather));
  }
  EXPECT_EQ(FingerprintOf(gather), FingerprintOf(gather));
}

TEST(Fingerprint, OfAReadOrWriteCoversContentAndSource) {
  Operation write;
  write.kind = OperationKind::kWrite;
  Operation other_content = write;
  other_content.content = Content::kExpAvg;
  Operation other_source = write;
  other_source.source_rank = 1;
  EXPECT_FALSE(FingerprintOf(other_content) == FingerprintOf(write));
  EXPECT_FALSE(FingerprintOf(other_source) == FingerprintOf(write));
  Operation reader = write;
  reader.wants_data = true;
  EXPECT_EQ(FingerprintOf(reader), FingerprintOf(write));
}

TEST(Fingerprint, OfAnImportCoversEveryPathOffsetAndType) {
  Operation import;
  import.kind = OperationKind::kImport;
  import.import_from = {{"/m/a", 8, DType::kFloat32}, { "/m/b", 16, DType::kFloat16 }};
  const Changes<Operation> changes = {
      [](Operation& o) { o.import_from[0].path = "/m/c"; },
      [](Operation& o) { o.import_from[1].offset_bytes = 17; },
      [](Operation& o) { o.import_from[1].dtype = DType::kBFloat16; },
      [](Operation& o) { std::swap(o.import_from[0], o.import_from[1]); },
      [](Operation& o) { o.import_from.pop_back(); },
  };
  for (const auto& change : changes) {
    Operation other = import;
    change(other);
    EXPECT_FALSE(FingerprintOf(other) == FingerprintOf(import));
  }
}

TEST(Fingerprint, OfARegistrationCoversTheLayer) {
  Operation left, right;
  left.kind = right.kind = OperationKind::kRegister;
  left.layer_spec = right.layer_spec = Linear();
  EXPECT_EQ(FingerprintOf(left), FingerprintOf(right));
  right.layer_spec.tensors[0].shape[0] = 33;
  EXPECT_FALSE(FingerprintOf(left) == FingerprintOf(right));
}

}  // namespace
}  // namespace zerod
