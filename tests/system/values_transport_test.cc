// What travels between nodes, what stays resident, and what a gather on one node doesn't copy.

#include <filesystem>
#include <fstream>
#include <sstream>

#include <c10/core/GradMode.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/ranks.h"
#include "tests/system/small_model.h"

namespace zerod {
namespace {

using nlohmann::json;

constexpr int64_t kWidth = 96;
constexpr int64_t kRows = 4;
constexpr std::chrono::seconds kSettle{10};

json Show(const Daemons& daemons, const Session& session, const std::string& command) {
  return json::parse(daemons.Ctl(session.info().node, {command}));
}

int64_t Counter(const Daemons& daemons, const Session& session, const std::string& name) {
  return Show(daemons, session, "status").at(name).get<int64_t>();
}

/// Four linear layers; the first and the third are frozen.
void AddFourLayers(ShardedSequential& model) {
  for (int layer = 0; layer < 4; ++layer) {
    model.AddLayer(Concat("layer", layer),
                   [layer] { return FormulaLinear(kWidth, kWidth, 2 * layer + 1); });
  }
}

ShardedOptions FourLayerOptions(int prefetch_depth) {
  return {.groups = {{.pattern = "layer[02]", .train = false}}, .prefetch_depth = prefetch_depth};
}

at::Tensor LossOfFourLayers(ShardedSequential& model, int64_t batch) {
  const at::Tensor output = model.Forward(Formula({kRows, kWidth}, batch));
  return LossOf(output, Formula({kRows, kWidth}, batch + 1));
}

int64_t PaddedBytes(const LayerPlan& plan) {
  int64_t bytes = 0;
  for (const ChunkPlan& chunk : plan.chunks) bytes += chunk.padded_numel * sizeof(float);
  return bytes;
}

/// By the architecture's formula, for one micro-batch and a world of dp ranks with `local` on this
/// node: bytes that the node sends in gathers and in reduces.
std::pair<int64_t, int64_t> ExpectedBytes(const ShardedModel& model, int dp, int local,
                                          int node_count) {
  // Layer 0 is frozen and its input needs no gradient: forward only. Layer 1 is gathered twice,
  // so is frozen layer 2, through which gradients pass. Layer 3 keeps its lease.
  constexpr int kGathers[] = {1, 2, 2, 1};
  constexpr int kReduces[] = {0, 1, 0, 1};
  int64_t gathered = 0;
  int64_t reduced = 0;
  for (size_t layer = 0; layer < model.layer_count(); ++layer) {
    const int64_t shard_bytes = PaddedBytes(model.plan(layer)) / dp;
    gathered += kGathers[layer] * shard_bytes * local * (node_count - 1);
    reduced += kReduces[layer] * shard_bytes * (dp - local);
  }
  return {gathered, reduced};
}

class TransportTest : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(TransportTest, CountersEqualTheVolumeFormula) {
  const Daemons daemons(GetParam());
  const auto values = RunRanksOrThrow(daemons, [&](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedSequential model(*session, FourLayerOptions(0));
    AddFourLayers(model);
    std::vector<double> rank_values;
    for (int step = 0; step < 2; ++step) {  // the first like all others
      model.Sum({0.0});
      const int64_t gathered = Counter(daemons, *session, "gather_sent_bytes");
      const int64_t reduced = Counter(daemons, *session, "reduce_sent_bytes");
      model.Sum({0.0});  // nobody begins before all have looked
      LossOfFourLayers(model, step).backward();
      model.Step({});
      model.Sum({0.0});
      const int local = daemons.LocalRanks(session->info().node);
      const auto expected =
          ExpectedBytes(model, options.world_size, local, session->info().node_count);
      rank_values.push_back(Counter(daemons, *session, "gather_sent_bytes") - gathered);
      rank_values.push_back(expected.first);
      rank_values.push_back(Counter(daemons, *session, "reduce_sent_bytes") - reduced);
      rank_values.push_back(expected.second);
      model.Sum({0.0});
    }
    session->Detach(true);
    return rank_values;
  });
  for (const auto& rank_values : values) {
    ASSERT_EQ(rank_values.size(), 8U);
    for (size_t i = 0; i < rank_values.size(); i += 2) {
      EXPECT_EQ(rank_values[i], rank_values[i + 1]) << (i % 4 == 0 ? "gathers" : "reduces");
      EXPECT_EQ(rank_values[i] > 0, GetParam().size() > 1);
    }
  }
}

std::string Spell(const std::vector<int>& ranks) {
  std::string text;
  for (int count : ranks) text += Concat(text.empty() ? "" : "And", count);
  return text;
}

INSTANTIATE_TEST_SUITE_P(Placements, TransportTest,
                         ::testing::Values(std::vector<int>{1, 1}, std::vector<int>{1, 1, 1},
                                           std::vector<int>{2, 2}, std::vector<int>{1, 2},
                                           std::vector<int>{2}),
                         [](const auto& ranks) { return Spell(ranks.param); });

int64_t Leases(const Daemons& daemons, const Session& session) {
  int64_t leases = 0;
  const json layers = Show(daemons, session, "layers").at("layers");
  for (const json& layer : layers) {
    leases += layer.at("leases").get<int64_t>();
  }
  const json sessions = Show(daemons, session, "sessions").at("sessions");
  for (const json& entry : sessions) {
    leases += entry.at("leases").get<int64_t>();
  }
  return leases;
}

int64_t GatheredActualBytes(const Daemons& daemons, const Session& session) {
  const json classes = Show(daemons, session, "memory").at("classes");
  for (const json& entry : classes) {
    if (entry.at("name") == "gathered") return entry.at("actual_bytes");
  }
  throw std::runtime_error("zeroctl memory shows no gathered bytes");
}

/// Whether, after some time at most, no lease is held and at most `bound_bytes` of other nodes'
/// segments are resident by both measures.
bool Settles(const Daemons& daemons, const Session& session, int64_t bound_bytes) {
  return WaitUntil(kSettle, [&] {
    return Leases(daemons, session) == 0 &&
           Counter(daemons, session, "resident_gathered_bytes") <= bound_bytes &&
           GatheredActualBytes(daemons, session) <= bound_bytes;
  });
}

TEST(ResidencyTest, LeasesAndGatheredBytesAreZeroAfterBackwardWithoutACache) {
  const Daemons daemons({2, 1});
  const auto values = RunRanksOrThrow(daemons, [&](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedSequential model(*session, FourLayerOptions(1));
    AddFourLayers(model);
    std::vector<double> settled;
    for (int step = 0; step < 2; ++step) {
      const at::Tensor loss = LossOfFourLayers(model, step);
      const bool held = Leases(daemons, *session) > 0;  // the last layer, by this rank at least
      loss.backward();
      settled.push_back(held && Settles(daemons, *session, 0));
      model.Sum({0.0});
      model.Step({});
    }
    session->Detach(true);
    return settled;
  });
  for (const auto& rank : values) EXPECT_EQ(rank, std::vector<double>({1, 1}));
}

TEST(ResidencyTest, ACacheHoldsWhatFitsItsBoundAndAHitMovesNothing) {
  const Daemons daemons({1, 1});
  const auto values = RunRanksOrThrow(daemons, [&](SessionOptions options) {
    // Two of the four layers fit.
    constexpr int64_t kBound = 100'000;  // a layer has 40960
    options.cache_bytes = kBound;
    const auto session = Session::Connect(options);
    ShardedSequential model(*session, FourLayerOptions(0));
    AddFourLayers(model);
    const int64_t layer_bytes = PaddedBytes(model.plan(0));
    std::vector<double> rank_values;
    const c10::NoGradGuard no_grad;
    auto measure = [&](size_t first, size_t last) {
      model.Sum({0.0});
      const int64_t sent = Counter(daemons, *session, "gather_sent_bytes");
      model.Sum({0.0});
      at::Tensor value = Formula({kRows, kWidth}, 3);
      for (size_t layer = first; layer < last; ++layer) value = model.Call(layer, {value})[0];
      model.Sum({0.0});
      const bool bounded = Settles(daemons, *session, kBound);
      rank_values.push_back(bounded);
      const int64_t moved = Counter(daemons, *session, "gather_sent_bytes") - sent;
      rank_values.push_back(2.0 * moved / layer_bytes);  // in layers
    };
    measure(0, 4);  // all four come; the last two stay
    measure(2, 4);
    measure(0, 1);  // comes, and layer 2, the oldest, goes
    measure(3, 4);
    measure(2, 3);
    session->Detach(true);
    return rank_values;
  });
  for (const auto& rank : values) {
    EXPECT_EQ(rank, std::vector<double>({1, 4, 1, 0, 1, 1, 1, 0, 1, 1}));
  }
}

/// The daemon's descriptor of the memory in which `address` of this process lies, opened anew for
/// writing, and the offset in it.
struct DaemonMemory {
  int fd = -1;
  int64_t offset_bytes = 0;
};

DaemonMemory FindInDaemon(int daemon_pid, const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  DaemonMemory found;
  uint64_t wanted_inode = 0;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    uint64_t offset = 0;
    uint64_t inode = 0;
    char dash = 0;
    std::string access;
    std::string device;
    std::istringstream(line) >> std::hex >> begin >> dash >> end >> access >> offset >> device >>
        std::dec >> inode;
    if (wanted < begin || wanted >= end) continue;
    found.offset_bytes = static_cast<int64_t>(offset + (wanted - begin));
    wanted_inode = inode;
  }
  const std::string folder = Concat("/proc/", daemon_pid, "/fd");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    struct stat status {};
    if (stat(entry.path().c_str(), &status) != 0 || status.st_ino != wanted_inode) continue;
    if (!std::filesystem::read_symlink(entry.path()).string().starts_with("/memfd:")) continue;
    found.fd = open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    break;
  }
  return found;
}

TEST(InNodeGatherTest, AWorkerReadsTheBytesThatTheDaemonHoldsAndNothingMoves) {
  Daemons daemons({2});
  const auto values = RunRanksOrThrow(daemons, [&](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    ShardedModel model(*session, {});
    std::vector<double> seen;
    const int daemon_pid = daemons.process(0).pid();
    model.AddLayer("layer", [&] {
      auto linear = FormulaLinear(kInput, kHidden, 1);
      auto forward = [&, linear](const std::vector<at::Tensor>& inputs) {
        const float* weight = linear->weight.const_data_ptr<float>();
        const DaemonMemory memory = FindInDaemon(daemon_pid, weight);
        // Rank 0 writes through the daemon's descriptor; rank 1 sees it, before or while it waits.
        const float value = 42.5f;
        const volatile float* shared = weight;
        if (options.rank == 0) {
          seen.push_back(weight[0]);
          if (pwrite(memory.fd, &value, sizeof(value), memory.offset_bytes) != sizeof(value)) {
            throw std::runtime_error("can't write through the daemon's descriptor");
          }
        } else {
          WaitUntil(kSettle, [&] { return shared[0] == value; });
        }
        seen.push_back(shared[0]);
        close(memory.fd);
        return inputs;
      };
      return LayerModule{linear.ptr(), forward, {}};
    });
    const c10::NoGradGuard no_grad;
    model.Call(0, {Formula({1, kInput}, 1)});
    model.Sum({0.0});
    seen.push_back(Counter(daemons, *session, "gather_sent_bytes"));
    seen.push_back(Counter(daemons, *session, "resident_gathered_bytes"));
    session->Detach(true);
    return seen;
  });
  const double before = FormulaLinear(kInput, kHidden, 1)->weight[0][0].item<double>();
  EXPECT_EQ(values[0], std::vector<double>({before, 42.5, 0, 0}));
  EXPECT_EQ(values[1], std::vector<double>({42.5, 0, 0}));
}

}  // namespace
}  // namespace zerod
