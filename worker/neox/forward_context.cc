#include "worker/neox/forward_context.h"

#include <array>
#include <mutex>

#include <ATen/Context.h>
#include <ATen/core/Generator.h>

#include "worker/neox/keyed_random.h"

namespace zerod::neox {

void ForwardContext::BeginTraining(const TrainingForward& forward) {
  training_ = true;
  cache_ = nullptr;
  const auto step = static_cast<uint64_t>(forward.step);
  const std::array<uint32_t, 4> words =
      Philox({static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32),
              static_cast<uint32_t>(forward.micro_batch), static_cast<uint32_t>(forward.dp_index)},
             forward.seed);
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(words[0] | static_cast<uint64_t>(words[1]) << 32);
}

void ForwardContext::BeginEvaluation() {
  training_ = false;
  cache_ = nullptr;
}

void ForwardContext::BeginDecoding(KeyValueCache& cache) {
  training_ = false;
  cache_ = &cache;
}

}  // namespace zerod::neox
