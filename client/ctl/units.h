#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace zerod::ctl {

/// "0 B", "1023 B", "1.5 MiB"; three digits at most before the unit's fraction.
std::string HumanBytes(int64_t bytes);

/// "999", "12.6 K", "1.42 M", "20.6 G": powers of 1000, for counts of elements.
std::string HumanCount(int64_t count);

/// "7 s", "3 min 20 s", "2 h 5 min", "3 d 4 h".
std::string HumanSeconds(int64_t seconds);

/// 16 hexadecimal digits.
std::string Hex(uint64_t value);

/// "500ms", "5s", "2m" or a bare number of seconds. Throws Error (kInvalidArgument) saying what is
/// allowed: 1 ms to 1 hour.
std::chrono::milliseconds ReadTimeout(const std::string& text);

}  // namespace zerod::ctl
