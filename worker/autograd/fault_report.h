#pragma once

#include <cstddef>
#include <string>

namespace zerod {

/// Exit code of a process that read the parameters of a released layer.
inline constexpr int kReleasedReadExitCode = 70;

/// From now on a memory fault in a watched range writes one line to standard error that names the
/// layer and `rank`, and ends the process with kReleasedReadExitCode. Any other fault is as before.
/// Replaces the handler of SIGSEGV, keeping it for other faults; called again, it only changes the
/// rank.
void InstallFaultReport(int rank);

/// Watches [begin, begin + bytes) under the name `label` (cut to 63 bytes). At most 4096 ranges;
/// more are not named. Thread-safe. Returns a number for UnwatchRange, or -1.
int WatchRange(const void* begin, size_t bytes, const std::string& label);
void UnwatchRange(int range);

}  // namespace zerod
