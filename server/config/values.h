#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zerod {

/// Readers of single values. Each throws Error (kInvalidArgument) whose message says only what is
/// allowed, e.g. "a whole number from 1 to 64"; the caller adds option, value and source.

int64_t ReadInteger(const std::string& text, int64_t lowest, int64_t highest);

/// "0", "4096", "64KiB", "1.5 GiB".
int64_t ReadBytes(const std::string& text);

/// true, false, on, off, yes, no, 1 or 0.
bool ReadBool(const std::string& text);

/// HOST:PORT or [IPV6]:PORT, given back unchanged.
std::string ReadAddress(const std::string& text, int lowest_port);

/// Comma-separated addresses, spaces around them ignored; empty text: none.
std::vector<std::string> ReadAddressList(const std::string& text);

/// Comma-separated absolute folders, spaces around them ignored; empty text: none.
std::vector<std::string> ReadFolderList(const std::string& text);

/// One of the given words.
std::string ReadWord(const std::string& text, const std::vector<std::string>& words);

/// Parts between the separators, without surrounding spaces; empty text: none.
std::vector<std::string> SplitTrimmed(const std::string& text, char separator);

}  // namespace zerod
