#pragma once

#include "tests/tidy/source.h"

namespace zerod::tidy {

inline constexpr int kMaxFileLines = 400;
inline constexpr int kMaxLineColumns = 100;
inline constexpr int kMaxFunctionLines = 70;
inline constexpr int kMaxTestLines = 60;

/// Files of at most 400 lines, lines of at most 100 characters (UTF-8 code points).
Findings CheckLengths(const Source& source);

/// C++ and Python functions of at most 70 lines, tests of at most 60, from the first line of the
/// signature to the last line of the body. Reads Google style by its braces: a function is the
/// outermost block behind a parameter list.
Findings CheckFunctions(const Source& source);

}  // namespace zerod::tidy
