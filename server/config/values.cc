#include "server/config/values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "proto/contract/error.h"

namespace zerod {
namespace {

[[noreturn]] void Refuse(const std::string& allowed) {
  throw Error(ErrorCode::kInvalidArgument, allowed);
}

std::string Trim(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

int64_t ReadInteger(const std::string& text, int64_t lowest, int64_t highest) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < lowest || value > highest) {
    Refuse(Concat("a whole number from ", lowest, " to ", highest));
  }
  return value;
}

int64_t ReadBytes(const std::string& text) {
  static constexpr std::array<std::pair<const char*, int>, 6> kUnits = {
      {{"", 0}, {"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}};
  static constexpr const char* kAllowed =
      "a size such as 0, 4096, 64KiB, 512MiB or 1.5GiB, below 2^62 bytes";
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + digits, number);
  if (error != std::errc() || stop != text.data() + digits) Refuse(kAllowed);
  const std::string unit = Trim(text.substr(digits));
  const auto* found = std::find_if(kUnits.begin(), kUnits.end(),
                                   [&](const auto& entry) { return unit == entry.first; });
  if (found == kUnits.end()) Refuse(kAllowed);
  const double bytes = std::ldexp(number, found->second);
  if (!(bytes < std::ldexp(1.0, 62))) Refuse(kAllowed);
  return static_cast<int64_t>(bytes);
}

bool ReadBool(const std::string& text) {
  for (const char* word : {"true", "on", "yes", "1"}) {
    if (text == word) return true;
  }
  for (const char* word : {"false", "off", "no", "0"}) {
    if (text == word) return false;
  }
  Refuse("true or false");
}

std::string ReadAddress(const std::string& text, int lowest_port) {
  const std::string allowed =
      Concat("HOST:PORT with a port from ", lowest_port, " to 65535, e.g. 10.0.0.1:7000");
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) Refuse(allowed);
  const std::string host = text.substr(0, colon);
  const bool bracketed = host.front() == '[' && host.back() == ']' && host.size() > 2;
  if (!bracketed && host.find_first_of(":[]/ \t") != std::string::npos) Refuse(allowed);
  try {
    ReadInteger(text.substr(colon + 1), lowest_port, 65535);
  } catch (const Error&) {
    Refuse(allowed);
  }
  return text;
}

std::vector<std::string> ReadAddressList(const std::string& text) {
  std::vector<std::string> addresses;
  for (const std::string& part : SplitTrimmed(text, ',')) {
    ReadAddress(part, 1);
    if (std::find(addresses.begin(), addresses.end(), part) != addresses.end()) {
      Refuse(Concat("a list that names each node once; ", part, " is in it twice"));
    }
    addresses.push_back(part);
  }
  return addresses;
}

std::vector<std::string> ReadFolderList(const std::string& text) {
  std::vector<std::string> folders = SplitTrimmed(text, ',');
  for (const std::string& folder : folders) {
    if (!folder.starts_with('/')) Refuse("absolute folders, e.g. /models,/data/models");
  }
  return folders;
}

std::string ReadWord(const std::string& text, const std::vector<std::string>& words) {
  if (std::find(words.begin(), words.end(), text) != words.end()) return text;
  std::string allowed = "one of";
  for (const std::string& word : words) allowed += (&word == &words.front() ? " " : ", ") + word;
  Refuse(allowed);
}

std::vector<std::string> SplitTrimmed(const std::string& text, char separator) {
  std::vector<std::string> parts;
  if (Trim(text).empty()) return parts;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(Trim(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

}  // namespace zerod
