#include "worker/train/figures.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace zerod::train {

std::string FixedText(double number, int decimals) {
  std::array<char, 400> text;  // the largest double has 309 digits before the point
  const int length = std::snprintf(text.data(), text.size(), "%.*f", decimals, number);
  return {text.data(), static_cast<size_t>(length)};
}

std::string CompactText(double number) {
  constexpr std::array<const char*, 5> kUnits = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  // 999.95 would be shown as 1000.0.
  while (number >= 999.95 && unit + 1 < kUnits.size()) {
    number /= 1000;
    ++unit;
  }
  return FixedText(number, unit == 0 ? 0 : 1) + kUnits[unit];
}

std::string BytesText(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {" B", " KiB", " MiB", " GiB", " TiB"};
  auto number = static_cast<double>(bytes);
  size_t unit = 0;
  while (number >= 1024 && unit + 1 < kUnits.size()) {
    number /= 1024;
    ++unit;
  }
  return FixedText(number, unit == 0 ? 0 : 1) + kUnits[unit];
}

std::string DurationText(double seconds) {
  const int64_t whole = std::llround(seconds);
  const int64_t hours = whole / 3600;
  std::array<char, 64> text;
  int length = 0;
  if (hours > 0) {
    length =
        std::snprintf(text.data(), text.size(), "%lld:%02lld:%02lld", static_cast<long long>(hours),
                      static_cast<long long>(whole / 60 % 60), static_cast<long long>(whole % 60));
  } else {
    length = std::snprintf(text.data(), text.size(), "%lld:%02lld",
                           static_cast<long long>(whole / 60), static_cast<long long>(whole % 60));
  }
  return {text.data(), static_cast<size_t>(length)};
}

}  // namespace zerod::train
