#include "worker/neox/checkpoint.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/worker/neox/scratch_file.h"
#include "worker/neox/tensor_spec.h"

namespace zerod::neox {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kBias = "gpt_neox.layers.1.attention.query_key_value.bias";

Config Small() {
  Config config;
  config.vocab_size = 5;
  config.hidden_size = 4;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.intermediate_size = 6;
  return config;
}

/// The tensors of a file in the making. Element k of every tensor is k + the length of the name the
/// tensor was first given.
class Draft {
 public:
  explicit Draft(const Config& config) {
    for (const TensorSpec& spec : ModelTensors(config)) Add(spec.name, spec.shape);
  }

  void Add(const std::string& name, const std::vector<int64_t>& shape) {
    shapes_[name] = shape;
    bases_[name] = static_cast<float>(name.size());
  }

  void Rename(const std::string& from, const std::string& to) {
    shapes_[to] = shapes_.at(from);
    bases_[to] = bases_.at(from);
    Remove(from);
  }

  void Remove(const std::string& name) { shapes_.erase(name); }

  void CopyValues(const std::string& from, const std::string& to) { bases_[to] = bases_[from]; }

  std::string Content() const {
    nlohmann::json header;
    std::string data;
    for (const auto& [name, shape] : shapes_) {
      const size_t begin = data.size();
      std::vector<float> values(static_cast<size_t>(TensorSpec{name, shape}.numel()));
      for (size_t k = 0; k < values.size(); ++k) {
        values[k] = bases_.at(name) + static_cast<float>(k);
      }
      data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
      header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
    }
    return SafetensorsContent(header.dump(), data);
  }

 private:
  std::map<std::string, std::vector<int64_t>> shapes_;
  std::map<std::string, float> bases_;
};

std::string ComplaintAbout(const Draft& draft, const Config& config) {
  const ScratchFile file(draft.Content());
  return ComplaintOf([&] { const Checkpoint opened(file.path(), config); });
}

TEST(Checkpoint, ReadsEveryTensor) {
  const ScratchFile file(Draft(Small()).Content());
  const Checkpoint checkpoint(file.path(), Small());
  for (const TensorSpec& spec : ModelTensors(Small())) {
    std::vector<float> values(static_cast<size_t>(spec.numel()));
    checkpoint.Read(spec.name, 0, values);
    for (size_t k = 0; k < values.size(); ++k) {
      EXPECT_EQ(values[k], static_cast<float>(spec.name.size() + k)) << spec.name;
    }
  }
}

TEST(Checkpoint, AcceptsTheOtherNameOfTheHead) {
  Draft draft(Small());
  draft.Rename("embed_out.weight", "lm_head.weight");
  const ScratchFile file(draft.Content());
  std::vector<float> values(20);
  Checkpoint(file.path(), Small()).Read("embed_out.weight", 0, values);
  EXPECT_EQ(values[19], 16 + 19);
}

TEST(Checkpoint, IgnoresTheBuffersOfOlderFiles) {
  Draft draft(Small());
  draft.Add("gpt_neox.layers.0.attention.bias", {1, 1, 2, 2});
  draft.Add("gpt_neox.layers.1.attention.masked_bias", {});
  draft.Add("gpt_neox.layers.1.attention.rotary_emb.inv_freq", {1});
  const ScratchFile file(draft.Content());
  EXPECT_NO_THROW(Checkpoint(file.path(), Small()));
}

TEST(Checkpoint, NamesAMissingTensor) {
  Draft draft(Small());
  draft.Remove(kBias);
  EXPECT_THAT(ComplaintAbout(draft, Small()), AllOf(HasSubstr(kBias), HasSubstr("missing")));
}

TEST(Checkpoint, NamesAMisshapenTensorWithBothShapes) {
  Draft draft(Small());
  draft.Add(kBias, {13});
  EXPECT_THAT(ComplaintAbout(draft, Small()),
              AllOf(HasSubstr(kBias), HasSubstr("[13]"), HasSubstr("[12]")));
}

TEST(Checkpoint, NamesAnUnknownTensor) {
  for (const char* name : {"gpt_neox.layers.2.attention.bias", "gpt_neox.layers.0.attention.scale",
                           "gpt_neox.layers.+1.attention.bias", "gpt_neox.layers.", "other"}) {
    Draft draft(Small());
    draft.Add(name, {1});
    EXPECT_THAT(ComplaintAbout(draft, Small()), AllOf(HasSubstr(name), HasSubstr("unknown")));
  }
}

TEST(Checkpoint, RefusesTwoHeads) {
  Draft draft(Small());
  draft.Add("lm_head.weight", {5, 4});
  EXPECT_THAT(ComplaintAbout(draft, Small()), HasSubstr("has both"));
}

TEST(Checkpoint, RefusesBiasesThatTheConfigLeavesOut) {
  Config config = Small();
  config.attention_bias = false;
  EXPECT_THAT(ComplaintAbout(Draft(Small()), config), HasSubstr("attention.dense.bias"));
}

TEST(Checkpoint, AcceptsAStoredTiedHeadOnlyIfItEqualsTheEmbedding) {
  Config tied = Small();
  tied.tie_word_embeddings = true;
  Draft draft(Small());
  EXPECT_THAT(ComplaintAbout(draft, tied), HasSubstr("'embed_out.weight' differs"));
  draft.CopyValues("gpt_neox.embed_in.weight", "embed_out.weight");
  const ScratchFile equal(draft.Content());
  EXPECT_NO_THROW(Checkpoint(equal.path(), tied));
  draft.Remove("embed_out.weight");
  const ScratchFile absent(draft.Content());
  EXPECT_NO_THROW(Checkpoint(absent.path(), tied));
}

}  // namespace
}  // namespace zerod::neox
