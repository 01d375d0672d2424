// The optimizer kernels against the speed of memory, in one run:
//   build/bin/kernels_bench [--benchmark_filter=AdamW]
// Elements are parameters; memcpy of as many floats is the yardstick. AdamW moves 28 bytes per
// parameter (four arrays read, three written), memcpy 8, so 3.5 times its time is the bound where
// memory is the limit.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/contract/error.h"
#include "server/optimizer/factory.h"

namespace zerod {
namespace {

constexpr std::size_t kNumel = 33'600'000;  // parameters of the benchmark model
constexpr std::size_t kBlockNumel = 65536;  // the daemon's grain

/// A page-aligned array of floats in a memfd, like the daemon's; every page written.
class Array {
 public:
  explicit Array(bool huge_pages) {
    const int descriptor = ::memfd_create("array", MFD_CLOEXEC);
    void* memory = MAP_FAILED;
    if (descriptor >= 0 && ::ftruncate(descriptor, kBytes) == 0) {
      memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    }
    if (descriptor >= 0) ::close(descriptor);
    if (memory == MAP_FAILED) {
      throw Error(ErrorCode::kResourceExhausted, Concat(kBytes, " bytes: ", ErrnoText(errno)));
    }
    if (huge_pages) ::madvise(memory, kBytes, MADV_HUGEPAGE);
    values_ = static_cast<float*>(memory);
    for (std::size_t i = 0; i < kNumel; ++i) {
      values_[i] = 1e-3f * static_cast<float>(i % 1000 + 1);
    }
  }
  ~Array() { ::munmap(values_, kBytes); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  std::span<float> span() { return {values_, kNumel}; }
  float* data() { return values_; }

 private:
  static constexpr std::size_t kBytes = kNumel * sizeof(float);
  float* values_;
};

void CountElements(benchmark::State& state, double bytes_per_element) {
  const double elements = static_cast<double>(state.iterations()) * kNumel;
  // Inverted rates: seconds per element, printed with an SI prefix (500p is 0.5 ns).
  state.counters["s_per_element"] =
      benchmark::Counter(elements, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["bytes_per_s"] = benchmark::Counter(
      elements * bytes_per_element, benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
}

void Memcpy(benchmark::State& state) {
  Array to(false), from(false);
  while (state.KeepRunning()) {
    std::memcpy(to.data(), from.data(), kNumel * sizeof(float));
    benchmark::ClobberMemory();
  }
  CountElements(state, 8);
}

/// Null, and the benchmark is skipped, where this CPU lacks the instructions.
const OptimizerKernels* KernelsOrSkip(benchmark::State& state, InstructionSet set) {
  if (set <= DetectInstructionSet()) return &SelectKernels(set);
  state.SkipWithError("this CPU lacks the instructions");
  return nullptr;
}

void AdamW(benchmark::State& state, InstructionSet set, bool huge_pages) {
  const OptimizerKernels* kernels = KernelsOrSkip(state, set);
  if (kernels == nullptr) return;
  Array p(huge_pages), m(huge_pages), v(huge_pages), g(huge_pages);
  AdamWArguments arguments{.learning_rate = 1e-4, .weight_decay = 0.1};
  while (state.KeepRunning()) {
    for (std::size_t begin = 0; begin < kNumel; begin += kBlockNumel) {
      const std::size_t numel = std::min(kBlockNumel, kNumel - begin);
      kernels->AdamW({p.span().subspan(begin, numel), m.span().subspan(begin, numel),
                      v.span().subspan(begin, numel), g.span().subspan(begin, numel)},
                     arguments);
    }
    ++arguments.count;
  }
  CountElements(state, 28);
}

void Sgd(benchmark::State& state, InstructionSet set) {
  const OptimizerKernels* kernels = KernelsOrSkip(state, set);
  if (kernels == nullptr) return;
  Array p(false), g(false);
  while (state.KeepRunning()) kernels->Sgd({p.span(), g.span()}, {.learning_rate = 1e-6});
  CountElements(state, 12);
}

void SumInto(benchmark::State& state, InstructionSet set, bool overwrite) {
  const OptimizerKernels* kernels = KernelsOrSkip(state, set);
  if (kernels == nullptr) return;
  Array accumulator(false), first(false), second(false);
  const std::array<const float*, 2> sources = {first.data(), second.data()};
  while (state.KeepRunning()) {
    benchmark::DoNotOptimize(kernels->SumInto(accumulator.span(), sources, overwrite));
  }
  CountElements(state, overwrite ? 12 : 16);
}

void SumTo(benchmark::State& state, InstructionSet set) {
  const OptimizerKernels* kernels = KernelsOrSkip(state, set);
  if (kernels == nullptr) return;
  Array destination(false), first(false), second(false);
  const std::array<const float*, 2> sources = {first.data(), second.data()};
  while (state.KeepRunning()) kernels->SumTo(destination.span(), sources);
  CountElements(state, 12);
}

BENCHMARK(Memcpy)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(AdamW, as_in_daemon, DetectInstructionSet(), /*huge_pages=*/true)
    ->Unit(benchmark::kMillisecond);

// The columns of one instruction set.
#define KERNELS_OF(name, set)                                                             \
  BENCHMARK_CAPTURE(AdamW, name, set, false)->Unit(benchmark::kMillisecond);              \
  BENCHMARK_CAPTURE(AdamW, name##_huge_pages, set, true)->Unit(benchmark::kMillisecond);  \
  BENCHMARK_CAPTURE(Sgd, name, set)->Unit(benchmark::kMillisecond);                       \
  BENCHMARK_CAPTURE(SumInto, name##_overwrite, set, true)->Unit(benchmark::kMillisecond); \
  BENCHMARK_CAPTURE(SumInto, name##_add, set, false)->Unit(benchmark::kMillisecond);      \
  BENCHMARK_CAPTURE(SumTo, name, set)->Unit(benchmark::kMillisecond)

KERNELS_OF(portable, InstructionSet::kPortable);
KERNELS_OF(avx2, InstructionSet::kAvx2);
KERNELS_OF(avx512, InstructionSet::kAvx512);

}  // namespace
}  // namespace zerod

BENCHMARK_MAIN();
