#pragma once

#include <string>

namespace zerod {

/// One line on stderr with time and level, for code that must not include the logging library.
/// Callable from any thread.
void LogInfo(const std::string& message);
void LogWarning(const std::string& message);
void LogError(const std::string& message);

}  // namespace zerod
