#pragma once

#include <string>

namespace zerod {

/// Writes `text` to standard output at once. Throws Error (kInternal) when it can't be written,
/// e.g. because the disk is full: who reads it from a file must not take a part for the whole.
void WriteStandardOutput(const std::string& text);

}  // namespace zerod
