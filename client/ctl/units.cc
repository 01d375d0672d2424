#include "client/ctl/units.h"

#include <charconv>
#include <cstdio>

#include "proto/contract/error.h"

namespace zerod::ctl {
namespace {

/// Three significant digits, e.g. 1.42, 12.6, 126.
std::string ThreeDigits(double value) {
  char text[32];
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::snprintf(text, sizeof(text), "%.*f", decimals, value);
  return text;
}

}  // namespace

std::string HumanBytes(int64_t bytes) {
  if (bytes < 1024) return Concat(bytes, " B");
  double value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1023.5) break;
    value /= 1024;
    unit = next;
  }
  return Concat(ThreeDigits(value), " ", unit);
}

std::string HumanCount(int64_t count) {
  if (count < 1000) return Concat(count);
  double value = static_cast<double>(count);
  const char* unit = "";
  for (const char* next : {"K", "M", "G", "T"}) {
    if (value < 999.5) break;
    value /= 1000;
    unit = next;
  }
  return Concat(ThreeDigits(value), " ", unit);
}

std::string HumanSeconds(int64_t seconds) {
  if (seconds < 60) return Concat(seconds, " s");
  if (seconds < 3600) return Concat(seconds / 60, " min ", seconds % 60, " s");
  if (seconds < 86400) return Concat(seconds / 3600, " h ", seconds % 3600 / 60, " min");
  return Concat(seconds / 86400, " d ", seconds % 86400 / 3600, " h");
}

std::string Hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::chrono::milliseconds ReadTimeout(const std::string& text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const std::string unit(stop, end);
  const double factor = unit == "ms" ? 1 : unit == "s" || unit.empty() ? 1000 : 60'000;
  const bool known = unit.empty() || unit == "ms" || unit == "s" || unit == "m";
  const double milliseconds = number * factor;
  if (error != std::errc() || !known || !(milliseconds >= 1 && milliseconds <= 3'600'000)) {
    throw Error(ErrorCode::kInvalidArgument, Concat("--timeout: '", text,
                                                    "' is not allowed; give a time such as 500ms, "
                                                    "5s or 2m, from 1ms to 60m"));
  }
  return std::chrono::milliseconds(static_cast<int64_t>(milliseconds));
}

}  // namespace zerod::ctl
