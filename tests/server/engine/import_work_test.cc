#include "server/engine/import_work.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "proto/contract/error.h"
#include "server/layout/planner.h"

namespace zerod {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Tensors of every kind: stored type x own type x trainable, odd sizes, larger than a piece.
struct Case {
  const char* name;
  int64_t numel;
  DType stored;
  DType dtype;
  bool trainable;
};
constexpr Case kCases[] = {
    {"large", 700'001, DType::kFloat32, DType::kFloat32, true},
    {"half", 4'097, DType::kFloat16, DType::kFloat32, true},
    {"bf16", 31, DType::kBFloat16, DType::kFloat32, true},
    {"frozen", 999, DType::kFloat32, DType::kFloat32, false},
    {"narrow", 600'003, DType::kFloat32, DType::kBFloat16, true},
    {"narrow_half", 5, DType::kFloat16, DType::kBFloat16, true},
    {"narrow_same", 2'049, DType::kBFloat16, DType::kBFloat16, true},
    {"narrow_frozen", 3'001, DType::kFloat32, DType::kBFloat16, false},
    {"narrow_frozen_same", 1, DType::kBFloat16, DType::kBFloat16, false},
};

/// Exact in all three stored types, different for every tensor: 7 significant bits.
float Coarse(size_t tensor, int64_t i) {
  return static_cast<float>((i * 37 + static_cast<int64_t>(tensor) * 11) % 127 - 63) / 64;
}
/// What is stored: in float32 with bits that bfloat16 can't hold.
float Stored(size_t tensor, int64_t i) {
  const float coarse = Coarse(tensor, i);
  return kCases[tensor].stored == DType::kFloat32 ? coarse * (1 + 0x1p-20f) : coarse;
}

uint16_t Fp16Bits(float value) {  // of a normal number or zero that float16 holds exactly
  if (value == 0) return 0;
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | ((bits >> 23 & 0xff) - 112) << 10 |
                               (bits >> 13 & 0x3ff));
}

class ImportWorkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "zerod-import-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    spec_.name = "block";
    std::ofstream files[] = {Open(0), Open(1)};
    for (size_t i = 0; i < std::size(kCases); ++i) {
      const Case& tensor = kCases[i];
      spec_.tensors.push_back({.name = tensor.name,
                               .shape = {tensor.numel},
                               .dtype = tensor.dtype,
                               .trainable = tensor.trainable});
      std::ofstream& file = files[i % 2];
      file << "gap";  // so that offsets are odd
      ranges_.push_back({FilePath(i % 2), static_cast<int64_t>(file.tellp()), tensor.stored});
      WriteTensor(file, i);
    }
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string FilePath(size_t index) const { return folder_ / ("weights" + std::to_string(index)); }
  std::ofstream Open(size_t index) const { return std::ofstream(FilePath(index)); }
  static void WriteTensor(std::ofstream& file, size_t tensor) {
    for (int64_t i = 0; i < kCases[tensor].numel; ++i) {
      const float value = Stored(tensor, i);
      const auto bits = std::bit_cast<uint32_t>(value);
      const uint16_t narrow = kCases[tensor].stored == DType::kFloat16
                                  ? Fp16Bits(value)
                                  : static_cast<uint16_t>(bits >> 16);
      const bool wide = kCases[tensor].stored == DType::kFloat32;
      file.write(
          wide ? reinterpret_cast<const char*>(&bits) : reinterpret_cast<const char*>(&narrow),
          wide ? 4 : 2);
    }
  }

  void Import(const Topology& topology, const LayerStore& store) const {
    const std::atomic<bool> cancelled = false;
    const std::vector<std::string> roots = {folder_};
    ImportShards({topology, roots, ranges_, cancelled}, store);
  }
  LayerStore MakeStore(const Topology& topology) const {
    const Mesh mesh{.dp = topology.World()};
    return {0, PlanLayer(spec_, mesh), {.job_id = "job", .topology = topology, .mesh = mesh}};
  }
  std::string ComplaintOf(ErrorCode code) const {
    const Topology topology{.node = 1, .ranks_per_node = {1, 2}};
    try {
      Import(topology, MakeStore(topology));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      return error.what();
    }
    return "(imported)";
  }

  fs::path folder_;
  LayerSpec spec_;
  std::vector<FileRange> ranges_;
};

/// What a shard must hold: by element of the chunk, 0 in gaps and padding.
std::vector<float> Expected(const LayerPlan& plan, int chunk, int rank) {
  std::vector<float> full(plan.chunks[chunk].padded_numel);
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    if (plan.tensors[i].chunk != chunk) continue;
    for (int64_t j = 0; j < plan.tensors[i].numel; ++j) {
      full[plan.tensors[i].offset_numel + j] = Stored(i, j);
    }
  }
  const int64_t numel = plan.chunks[chunk].shard_numel;
  return {full.begin() + rank * numel, full.begin() + (rank + 1) * numel};
}

void ExpectShard(const LayerStore& store, int chunk, int local, int rank) {
  const ChunkPlan& plan = store.plan().chunks[chunk];
  const std::vector<float> want = Expected(store.plan(), chunk, rank);
  if (plan.trainable || plan.dtype == DType::kFloat32) {
    EXPECT_TRUE(std::ranges::equal(store.Master(chunk, local), want))
        << "chunk " << chunk << " of rank " << rank;
  }
  if (plan.dtype == DType::kFloat32) return;
  const std::span<const uint16_t> parameters = store.Bf16Parameters(chunk, local);
  for (size_t i = 0; i < want.size(); ++i) {
    // 2^-20 more than a bfloat16 number rounds down to it.
    ASSERT_EQ(parameters[i], std::bit_cast<uint32_t>(want[i]) >> 16) << "element " << i;
  }
}

TEST_F(ImportWorkTest, EveryShardGetsTheValuesOfTheFilesAndPaddingStaysZero) {
  for (const std::vector<int>& ranks :
       {std::vector<int>{1}, std::vector<int>{3}, std::vector<int>{2, 1}}) {
    for (int node = 0; node < static_cast<int>(ranks.size()); ++node) {
      const Topology topology{.node = node, .ranks_per_node = ranks};
      const LayerStore store = MakeStore(topology);
      ASSERT_EQ(store.plan().chunks.size(), 4u);
      Import(topology, store);
      for (int chunk = 0; chunk < 4; ++chunk) {
        for (int local = 0; local < topology.LocalRanks(); ++local) {
          ExpectShard(store, chunk, local, topology.FirstRank(node) + local);
        }
      }
    }
  }
}

TEST_F(ImportWorkTest, ARangePastTheEndOfItsFileIsRefusedBeforeAnythingIsWritten) {
  const auto size = static_cast<int64_t>(fs::file_size(FilePath(0)));
  const int64_t needed = kCases[8].numel * 2;
  for (const int64_t offset : {size - needed + 1, size, size + 1, INT64_MAX}) {
    ranges_[8].offset_bytes = offset;
    EXPECT_THAT(ComplaintOf(ErrorCode::kDataLoss),
                AllOf(HasSubstr("node 1 can't import tensor 'narrow_frozen_same' of layer 'block'"),
                      HasSubstr(FilePath(0)), HasSubstr("it needs 2 bytes from byte"),
                      HasSubstr(std::to_string(size))));
  }
  const Topology topology{.node = 0, .ranks_per_node = {1}};
  const LayerStore store = MakeStore(topology);
  EXPECT_THROW(Import(topology, store), Error);
  EXPECT_TRUE(std::ranges::all_of(store.Master(0, 0), [](float value) { return value == 0; }));
}

TEST_F(ImportWorkTest, AShortFileIsNamedWithNodeTensorAndPath) {
  fs::resize_file(FilePath(1), 100);
  EXPECT_THAT(ComplaintOf(ErrorCode::kDataLoss),
              AllOf(HasSubstr("node 1 can't import tensor 'half'"), HasSubstr(FilePath(1)),
                    HasSubstr("the file has 100 on this node")));
}

TEST_F(ImportWorkTest, AMissingFileIsNotFound) {
  fs::remove(FilePath(1));
  EXPECT_THAT(ComplaintOf(ErrorCode::kNotFound), HasSubstr("node 1 can't import tensor 'half'"));
}

}  // namespace
}  // namespace zerod
