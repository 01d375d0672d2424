// Layers that the daemons read from files: values, and what is said when they can't.

#include <fstream>

#include <gmock/gmock.h>

#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/system/mixed_layer.h"
#include "tests/system/small_model.h"
#include "tests/system/values_reader.h"
#include "worker/sharded/sharded_sequential.h"

namespace zerod {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kIn = 61;
constexpr int64_t kOut = 97;

struct Stored {
  at::Tensor values;
  DType dtype;
};

/// For each tensor of a MixedLayer, other values than it makes itself; the float32 ones need more
/// bits than bfloat16 has.
std::vector<Stored> StoredTensors() {
  return {{Formula({kOut, kIn}, 50) * (1 + 1e-6), DType::kFloat32},
          {Formula({kOut}, 51).to(at::kHalf), DType::kFloat16},
          {Formula({kOut}, 52).to(at::kBFloat16), DType::kBFloat16},
          {Formula({kOut}, 53) * (1 + 1e-6), DType::kFloat32}};
}

/// Writes the tensors one behind the other after a header of 13 bytes.
std::vector<FileRange> WriteFile(const std::string& path) {
  std::ofstream file(path);
  file << "thirteen byte";
  std::vector<FileRange> ranges;
  for (const Stored& stored : StoredTensors()) {
    ranges.push_back({path, static_cast<int64_t>(file.tellp()), stored.dtype});
    file.write(static_cast<const char*>(stored.values.data_ptr()),
               static_cast<std::streamsize>(stored.values.nbytes()));
  }
  return ranges;
}

std::vector<double> ImportAndRead(const SessionOptions& options,
                                  const std::vector<FileRange>& ranges) {
  const auto session = Session::Connect(options);
  ShardedSequential model(*session, {});
  model.AddLayer("layer", [] { return MixedLayer(kIn, kOut, 1); },
                 {.initialized = false, .import_from = ranges});
  std::vector<double> values;
  for (Content content : {Content::kMaster, Content::kParameter}) {
    for (const at::Tensor& tensor : model.ReadLayer(0, content)) Append(values, tensor);
  }
  const c10::NoGradGuard no_grad;
  Append(values, model.Forward(Formula({3, kIn}, 9)));
  session->Detach(true);
  return values;
}

TEST(ImportTest, EveryRankReadsBackWhatItsDaemonsReadFromTheFile) {
  for (const std::vector<int>& ranks : {std::vector<int>{1}, std::vector<int>{2, 1}}) {
    const ScratchFolder folder;
    const std::vector<FileRange> ranges = WriteFile(folder.File("weights"));
    const Daemons daemons(ranks);
    const auto got = RunRanksOrThrow(
        daemons, [&](const SessionOptions& options) { return ImportAndRead(options, ranges); });
    MixedLayer plain(kIn, kOut, 1);
    const c10::NoGradGuard no_grad;
    std::vector<double> want;
    const std::vector<at::Tensor> parameters = plain->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].copy_(StoredTensors()[i].values);
      Append(want, StoredTensors()[i].values);  // masters keep all bits
    }
    for (const at::Tensor& parameter : parameters) Append(want, parameter);
    Append(want, plain->forward(Formula({3, kIn}, 9)));
    for (const auto& values : got) EXPECT_EQ(values, want);
  }
}

TEST(ImportTest, AMissingFileEndsAllRanksAsABadModelAndTheNextAttachIsNew) {
  const ScratchFolder folder;
  std::vector<FileRange> ranges = WriteFile(folder.File("weights"));
  ranges[1].path = folder.File("nothing");
  const Daemons daemons({2, 1});
  auto run = [&] {
    return RunRanks(daemons,
                    [&](const SessionOptions& options) { return ImportAndRead(options, ranges); });
  };
  for (const RankOutcome& outcome : run()) {
    ASSERT_FALSE(outcome.ok);
    EXPECT_EQ(outcome.error_code, static_cast<int>(ErrorCode::kNotFound));
    EXPECT_THAT(outcome.error,
                AllOf(HasSubstr("can't import tensor 'layer.gain' of layer 'layer' from " +
                                folder.File("nothing")),
                      HasSubstr("the same path on every node"), HasSubstr("is dropped")));
  }
  ranges = WriteFile(folder.File("nothing"));
  for (const RankOutcome& outcome : run()) EXPECT_TRUE(outcome.ok) << outcome.error;
}

TEST(ImportTest, RanksThatNameOtherFilesDiverge) {
  const ScratchFolder folder;
  const std::vector<FileRange> ranges = WriteFile(folder.File("weights"));
  const Daemons daemons({1, 1});
  const auto outcomes = RunRanks(daemons, [&](const SessionOptions& options) {
    std::vector<FileRange> own = ranges;
    if (options.rank == 1) own[0].offset_bytes += 4;
    return ImportAndRead(options, own);
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_THAT(outcome.error,
                AllOf(HasSubstr("the ranks diverge"), HasSubstr("import of layer 0 'layer'")));
  }
}

}  // namespace
}  // namespace zerod
