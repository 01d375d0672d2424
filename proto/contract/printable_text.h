#pragma once

#include <string>

namespace zerod {

/// Bytes made fit for a terminal: whole UTF-8 characters, tabs and line ends stay, anything else is
/// shown as \xNN.
std::string PrintableText(const std::string& bytes);

/// The same for one line of a terminal or a log: tabs and line ends are shown as \xNN too.
std::string OneLineText(const std::string& bytes);

}  // namespace zerod
