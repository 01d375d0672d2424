// Export and sampling of models in the daemons.

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/file_size_limit.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/system/values_neox.h"
#include "worker/neox/checkpoint.h"
#include "worker/neox/safetensors_writer.h"
#include "worker/neox/tensor_spec.h"
#include "worker/train/exporter.h"
#include "worker/train/text_sampler.h"

namespace zerod {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string FolderOf(const std::string& name) {
  return std::string(ZEROD_NEOX_DATA_DIR) + "/" + name;
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A stored model, and ranks that load it.
class Source {
 public:
  explicit Source(std::string folder)
      : folder_(std::move(folder)),
        config_(neox::ReadConfig(folder_ + "/config.json")),
        weights_(folder_, config_) {}

  const neox::Config& config() const { return config_; }
  const neox::Checkpoint& weights() const { return weights_; }

  train::ExportOptions ExportTo(const std::string& folder) const {
    return {.folder = folder, .config_path = folder_ + "/config.json", .source = &weights_};
  }

  /// A rank's part of loading the model and exporting it.
  void Export(const SessionOptions& session_options, const train::ExportOptions& options) const {
    const auto session = Session::Connect(session_options);
    ShardedSequential model(*session, {});
    AddNeox(model, config_, [this](neox::Layer& layer) { layer.Load(weights_); });
    train::Export(options, config_, model);
    session->Detach(true);
  }

 private:
  const std::string folder_;
  const neox::Config config_;
  const neox::Checkpoint weights_;
};

/// Bytes of a tensor as stored.
std::string Bytes(const neox::Checkpoint& checkpoint, const neox::TensorSpec& spec) {
  const FileRange range = checkpoint.Locate(spec.name);
  std::string bytes(static_cast<size_t>(spec.numel() * SizeOf(range.dtype)), '\0');
  std::ifstream file(range.path, std::ios::binary);
  file.seekg(range.offset_bytes);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& item : std::filesystem::directory_iterator(folder)) {
    names.push_back(item.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

class ExportTest : public testing::Test {
 protected:
  const ScratchFolder scratch_;
  const std::string out_ = scratch_.File("out");
};

class UnchangedTest : public ExportTest, public testing::WithParamInterface<std::string> {};

TEST_P(UnchangedTest, GivesNamesShapesAndBytesBack) {
  const Daemons daemons({1, 2});
  const Source source(FolderOf(GetParam()) + "/model");
  RunRanksOrThrow(daemons, [&](const SessionOptions& options) {
    train::ExportOptions to = source.ExportTo(out_);
    to.max_file_bytes = GetParam() == "parallel" ? 40'000 : 5'000'000;
    source.Export(options, to);
    return std::vector<double>();
  });
  EXPECT_EQ(TextOf(out_ + "/config.json"), TextOf(FolderOf(GetParam()) + "/model/config.json"));
  EXPECT_EQ(std::filesystem::exists(out_ + "/model.safetensors"), GetParam() != "parallel");
  const neox::Checkpoint exported(out_, neox::ReadConfig(out_ + "/config.json"));
  EXPECT_EQ(exported.names(), source.weights().names());
  std::vector<neox::TensorSpec> specs = neox::ModelTensors(source.config());
  for (const neox::TensorSpec& spec : specs) {
    EXPECT_EQ(exported.stored_name(spec.name), source.weights().stored_name(spec.name));
    EXPECT_EQ(Bytes(exported, spec), Bytes(source.weights(), spec)) << spec.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, UnchangedTest,
                         testing::Values("parallel", "tied_float16", "bfloat16_fast"),
                         [](const auto& folder) { return folder.param; });

TEST_F(ExportTest, KeepsATiedHeadThatWasStored) {
  const Source stored(FolderOf("tied_tanh") + "/model");
  const Daemons daemons({1});
  // The same model with its head written out, under the other name.
  const std::string with_head = scratch_.File("with_head");
  const neox::TensorSpec embedding = neox::EmbeddingTensors(stored.config())[0];
  std::vector<neox::StoredTensor> tensors = {{"lm_head.weight", DType::kFloat32, embedding.shape}};
  for (const neox::TensorSpec& spec : neox::ModelTensors(stored.config())) {
    tensors.push_back({spec.name, DType::kFloat32, spec.shape});
  }
  std::filesystem::create_directory(with_head);
  std::filesystem::copy(FolderOf("tied_tanh") + "/model/config.json", with_head);
  neox::SafetensorsWriter writer(with_head + "/model.safetensors", tensors);
  for (const neox::TensorSpec& spec : neox::ModelTensors(stored.config())) {
    const std::string bytes = Bytes(stored.weights(), spec);
    writer.Write(spec.name, 0, std::as_bytes(std::span(bytes)));
    if (spec.name == embedding.name) {
      writer.Write("lm_head.weight", 0, std::as_bytes(std::span(bytes)));
    }
  }
  writer.Finish();
  writer.Publish();
  const Source source(with_head);
  RunRanksOrThrow(daemons, [&](const SessionOptions& options) {
    source.Export(options, source.ExportTo(out_));
    return std::vector<double>();
  });
  const neox::Safetensors exported(out_ + "/model.safetensors");
  EXPECT_EQ(exported.tensors().size(), tensors.size());
  EXPECT_TRUE(exported.tensors().contains("lm_head.weight"));
  EXPECT_NO_THROW(neox::Checkpoint(out_, source.config()));  // compares both
}

TEST_F(ExportTest, RoundsToAChosenType) {
  const Source source(FolderOf("sequential") + "/model");
  const Daemons daemons({1});
  RunRanksOrThrow(daemons, [&](const SessionOptions& options) {
    train::ExportOptions to = source.ExportTo(out_);
    to.dtype = DType::kBFloat16;
    source.Export(options, to);
    return std::vector<double>();
  });
  const neox::Config config = neox::ReadConfig(out_ + "/config.json");
  EXPECT_EQ(config.dtype, DType::kBFloat16);
  const neox::Checkpoint exported(out_, config);
  for (const neox::TensorSpec& spec : neox::ModelTensors(config)) {
    EXPECT_EQ(exported.stored_dtype(spec.name), DType::kBFloat16);
    std::vector<float> found(static_cast<size_t>(spec.numel()));
    std::vector<float> exact(found.size());
    exported.Read(spec.name, 0, found);
    source.weights().Read(spec.name, 0, exact);
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_LE(std::abs(found[i] - exact[i]), std::abs(exact[i]) / 256) << spec.name;
    }
  }
}

/// Exports once, then again with rank 0 short of room for the weights, and expects that only the
/// first shows.
TEST_F(ExportTest, OnAFullDiskLeavesTheOlderOneAndAllRanksSayWhy) {
  const Source source(FolderOf("parallel") + "/model");
  const Daemons daemons({1, 1});
  for (const bool full : {false, true}) {
    const auto outcomes = RunRanks(daemons, [&](const SessionOptions& options) {
      train::ExportOptions to = source.ExportTo(out_);
      std::optional<FileSizeLimit> limit;
      if (full && options.rank == 0) limit.emplace(40'000);
      if (full) to.dtype = DType::kFloat32;
      source.Export(options, to);
      return std::vector<double>();
    });
    for (const RankOutcome& outcome : outcomes) {
      EXPECT_EQ(outcome.ok, !full) << outcome.error;
      if (!full) continue;
      EXPECT_THAT(outcome.error, AllOf(HasSubstr(out_), HasSubstr("File too large")));
    }
    EXPECT_THAT(NamesIn(out_), ElementsAre("config.json", "model.safetensors"));
    EXPECT_NO_THROW(neox::Checkpoint(out_, source.config()));
  }
}

TEST_F(ExportTest, NamesTensorsWithValuesThatAreNotFinite) {
  const Source source(FolderOf("parallel") + "/model");
  const Daemons daemons({2});
  const auto counts = RunRanksOrThrow(daemons, [&](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedSequential model(*session, {});
    AddNeox(model, source.config(), [&](neox::Layer& layer) {
      layer.Load(source.weights());
      const c10::NoGradGuard no_grad;
      if (layer.specs()[0].name.find("layers.1") == std::string::npos) return;
      layer.parameter("attention.dense.bias")[3].fill_(std::numeric_limits<float>::infinity());
      layer.parameter("attention.dense.weight")[0][1].fill_(-std::nanf(""));
      // The sum of large values isn't finite either.
      layer.parameter("mlp.dense_4h_to_h.bias").fill_(3e38F);
    });
    const auto names = train::Export(source.ExportTo(out_), source.config(), model);
    for (const std::string& name : names) {
      if (name.starts_with("gpt_neox.layers.1.attention.dense.")) continue;
      throw Error(ErrorCode::kInternal, name);
    }
    session->Detach(true);
    return std::vector<double>{static_cast<double>(names.size())};
  });
  EXPECT_THAT(counts, ElementsAre(ElementsAre(2), ElementsAre(0)));  // weight and bias, on rank 0
  std::vector<float> found(1);
  neox::Checkpoint(out_, source.config()).Read("gpt_neox.layers.1.attention.dense.bias", 3, found);
  EXPECT_EQ(found[0], std::numeric_limits<float>::infinity());
}

TEST(NotFiniteText, NamesOneTensorAndCountsTheOthers) {
  EXPECT_EQ(train::NotFiniteText({"a"}), "exported NaN or infinite values in tensor 'a'");
  EXPECT_EQ(train::NotFiniteText({"a", "b", "c"}),
            "exported NaN or infinite values in tensor 'a' and 2 more");
}

TEST_F(ExportTest, IntoNowhereIsNamedByAllRanks) {
  const Source source(FolderOf("parallel") + "/model");
  const Daemons daemons({2});
  const std::string nowhere = scratch_.File("none/out");
  const auto outcomes = RunRanks(daemons, [&](const SessionOptions& options) {
    source.Export(options, source.ExportTo(nowhere));
    return std::vector<double>();
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_THAT(outcome.error, AllOf(HasSubstr(nowhere), HasSubstr("No such file or directory")));
  }
}

TEST_F(ExportTest, ToATypeThatCannotHoldAValueLeavesNothing) {
  const Source source(FolderOf("parallel") + "/model");
  const Daemons daemons({2});
  const auto outcomes = RunRanks(daemons, [&](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedSequential model(*session, {});
    AddNeox(model, source.config(), [&](neox::Layer& layer) {
      layer.Load(source.weights());
      const c10::NoGradGuard no_grad;
      if (layer.specs()[0].name.find("layers.1") != std::string::npos) {
        layer.parameter("attention.dense.bias")[3].fill_(70000);
      }
    });
    train::ExportOptions to = source.ExportTo(out_);
    to.dtype = DType::kFloat16;
    train::Export(to, source.config(), model);
    return std::vector<double>();
  });
  EXPECT_THAT(outcomes[0].error, AllOf(HasSubstr("gpt_neox.layers.1.attention.dense.bias"),
                                       HasSubstr("70000"), HasSubstr("float16")));
  EXPECT_THAT(outcomes[1].error, AllOf(HasSubstr("rank 0"), HasSubstr(out_)));
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST(SampleTest, GreedyTokensOfAShardedModelAgreeWithTheReferenceOnAllRanks) {
  const Source source(FolderOf("sequential") + "/model");
  std::ifstream file(FolderOf("sequential") + "/extra.json");
  const nlohmann::json expected = nlohmann::json::parse(file)["greedy"];
  const Daemons daemons({1, 1});
  const auto results = RunRanksOrThrow(daemons, [&](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedSequential model(*session, {});
    const auto forward = std::make_shared<neox::ForwardContext>();
    AddNeox(
        model, source.config(), [&](neox::Layer& layer) { layer.Load(source.weights()); }, forward);
    const auto tokens = train::SampleTokens(
        expected["prompt"],
        {.tokens = static_cast<int64_t>(expected["tokens"].size()), .temperature = 0},
        train::SampleModelOf(source.config(), *forward, model));
    session->Detach(true);
    return std::vector<double>(tokens.begin(), tokens.end());
  });
  for (const auto& result : results) {
    EXPECT_EQ(result, expected["tokens"].get<std::vector<double>>());
  }
}

}  // namespace
}  // namespace zerod
