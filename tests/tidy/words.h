#pragma once

#include <span>

#include "tests/tidy/source.h"

namespace zerod::tidy {

/// Calls that this project doesn't make, each with what to use instead and, where there is one, the
/// place that may make it (the options code reads the environment, tests may sleep).
Findings CheckBannedCalls(const Source& source);

/// std::atomic's own notify: it wakes threads of this process only, so on a page that two processes
/// share nobody ever wakes. Found as a notify in proto/contract, or in a file without a condition
/// variable in it or in the header beside it.
Findings CheckAtomicNotify(std::span<const Source> sources);

/// Words that mark unfinished work, code that is switched off, and folders of one machine.
Findings CheckLeftovers(const Source& source);

/// Tabs, trailing blanks, carriage returns, no line break at the end.
Findings CheckBlanks(const Source& source);

/// Using-directives (`using namespace`) anywhere but in the literals of the standard library.
Findings CheckUsingDirectives(const Source& source);

}  // namespace zerod::tidy
