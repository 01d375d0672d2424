// Bytes per second between two nodes on loopback: both send and receive one segment at once, as in
// a gather.

#include <future>
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include "tests/server/collective/nodes.h"

namespace zerod::testing {
namespace {

constexpr milliseconds kTimeout{60'000};

void SwapSegment(Communicator& communicator, int node, uint64_t ticket,
                 std::span<const std::byte> sent, std::span<std::byte> received) {
  communicator.Exchange(std::vector<SendSegment>{{1 - node, Tag(ticket, node), sent}},
                        std::vector<ReceiveSegment>{{1 - node, Tag(ticket, 1 - node), received}},
                        kTimeout);
}

void Swap(benchmark::State& state) {
  const size_t bytes = static_cast<size_t>(state.range(0));
  TemporaryFolder folder;
  auto peer = std::async(std::launch::async, [&] {
    const auto communicator = Connect(folder.path(), 1, 2);
    std::vector<std::byte> sent(bytes), received(bytes);
    try {
      for (uint64_t ticket = 1;; ++ticket) SwapSegment(*communicator, 1, ticket, sent, received);
    } catch (const Error&) {
      // The other side has measured enough and left.
    }
  });
  auto communicator = Connect(folder.path(), 0, 2);
  std::vector<std::byte> sent(bytes), received(bytes);
  uint64_t ticket = 0;
  while (state.KeepRunning()) SwapSegment(*communicator, 0, ++ticket, sent, received);
  communicator.reset();
  peer.get();
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
}
// Below a page, 1 MiB, and one layer's shard of a 160M model over two nodes.
BENCHMARK(Swap)->Arg(1 << 10)->Arg(1 << 20)->Arg(12'600'000)->UseRealTime();

}  // namespace
}  // namespace zerod::testing

BENCHMARK_MAIN();
