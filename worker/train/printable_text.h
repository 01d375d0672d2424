#pragma once

#include <string>

namespace zerod::train {

/// Bytes made fit for a terminal: whole UTF-8 characters, tabs and line ends stay, anything else is
/// shown as \xNN.
std::string PrintableText(const std::string& bytes);

}  // namespace zerod::train
