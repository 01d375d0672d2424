#include "proto/contract/printable_text.h"

#include <array>
#include <cstddef>
#include <cstdio>

namespace zerod {
namespace {

/// Bytes of the UTF-8 character at `place`, 0 if there is no whole and allowed one.
size_t CharacterBytes(const std::string& bytes, size_t place) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char first = byte(place);
  size_t count = 0;
  if (first >= 0xC2 && first < 0xE0) count = 2;
  if (first >= 0xE0 && first < 0xF0) count = 3;
  if (first >= 0xF0 && first < 0xF5) count = 4;
  if (count == 0 || place + count > bytes.size()) return 0;
  for (size_t i = 1; i < count; ++i) {
    if ((byte(place + i) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = byte(place + 1);
  // C1 controls, overlong forms, surrogates, beyond U+10FFFF.
  const bool refused = (first == 0xC2 && second < 0xA0) || (first == 0xE0 && second < 0xA0) ||
                       (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90) ||
                       (first == 0xF4 && second > 0x8F);
  return refused ? 0 : count;
}

std::string Escaped(const std::string& bytes, bool keeps_lines) {
  std::string text;
  for (size_t place = 0; place < bytes.size();) {
    const auto byte = static_cast<unsigned char>(bytes[place]);
    const bool layout = byte == '\n' || byte == '\t';
    const bool plain = (layout && keeps_lines) || (byte >= 0x20 && byte < 0x7F);
    const size_t count = plain ? 1 : byte < 0x80 ? 0 : CharacterBytes(bytes, place);
    if (count > 0) {
      text += bytes.substr(place, count);
      place += count;
      continue;
    }
    std::array<char, 8> code;
    std::snprintf(code.data(), code.size(), "\\x%02x", byte);
    text += code.data();
    ++place;
  }
  return text;
}

}  // namespace

std::string PrintableText(const std::string& bytes) { return Escaped(bytes, true); }

std::string OneLineText(const std::string& bytes) { return Escaped(bytes, false); }

}  // namespace zerod
