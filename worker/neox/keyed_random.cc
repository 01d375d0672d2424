#include "worker/neox/keyed_random.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace zerod::neox {
namespace {

constexpr int kRounds = 10;

// FNV-1a: short, and the names of one model don't collide in 64 bits.
uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : name) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  }
  return hash;
}

/// Two normal values from two words (Box-Muller).
void NormalPair(uint32_t first, uint32_t second, float* out) {
  constexpr float kTwoToMinus32 = 0x1p-32F;
  // Half a step away from 0, whose logarithm doesn't exist.
  const float uniform = (static_cast<float>(first) + 0.5F) * kTwoToMinus32;
  const float angle = static_cast<float>(second) * kTwoToMinus32 * 2.0F * std::numbers::pi_v<float>;
  const float radius = std::sqrt(-2.0F * std::log(uniform));
  out[0] = radius * std::cos(angle);
  out[1] = radius * std::sin(angle);
}

}  // namespace

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, uint64_t key) {
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t left = uint64_t{0xD2511F53} * counter[0];
    const uint64_t right = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(right >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(right),
               static_cast<uint32_t>(left >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(left)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

KeyedRandom::KeyedRandom(uint64_t seed, std::string_view name)
    : seed_(seed), name_hash_(HashName(name)) {}

void KeyedRandom::FillNormal(uint64_t first_index, double mean, double deviation,
                             std::span<float> out) const {
  const auto center = static_cast<float>(mean);
  if (deviation == 0) {
    std::fill(out.begin(), out.end(), center);
    return;
  }
  const auto scale = static_cast<float>(deviation);
  size_t done = 0;
  while (done < out.size()) {
    const uint64_t index = first_index + done;
    const uint64_t block = index / 4;
    const std::array<uint32_t, 4> word =
        Philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                static_cast<uint32_t>(name_hash_), static_cast<uint32_t>(name_hash_ >> 32)},
               seed_);
    std::array<float, 4> normal;
    NormalPair(word[0], word[1], &normal[0]);
    NormalPair(word[2], word[3], &normal[2]);
    for (size_t lane = index % 4; lane < 4 && done < out.size(); ++lane) {
      out[done++] = center + scale * normal[lane];
    }
  }
}

}  // namespace zerod::neox
