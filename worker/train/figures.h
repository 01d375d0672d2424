#pragma once

#include <cstdint>
#include <string>

namespace zerod::train {

/// "873", "12.3k", "33.6M": three to four digits.
std::string CompactText(double number);

/// "512 B", "6.3 MiB".
std::string BytesText(int64_t bytes);

/// "0:05", "12:34", "1:02:03", rounded to seconds.
std::string DurationText(double seconds);

/// A number with a fixed count of decimals.
std::string FixedText(double number, int decimals);

}  // namespace zerod::train
