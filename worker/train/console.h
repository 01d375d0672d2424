#pragma once

#include <mutex>
#include <ostream>
#include <string>

namespace zerod::train {

/// How a run shows itself.
enum class ConsoleStyle {
  kSilent,    // not at all: ranks other than 0
  kPlain,     // lines: a file or a pipe
  kTerminal,  // lines above a bar that is redrawn in place
};

/// Where rank 0 shows lines and, on a terminal, a bar below them. Callable from any thread.
class Console {
 public:
  /// `out` outlives the console.
  Console(ConsoleStyle style, std::ostream& out) : style_(style), out_(out) {}

  ConsoleStyle style() const { return style_; }

  /// Writes a line; the bar, if there is one, stays below.
  void Line(const std::string& text);

  /// Draws the bar anew. Nothing but on a terminal.
  void Bar(const std::string& text);

  /// Removes the bar.
  void ClearBar();

  /// Writes something of several lines as it is.
  void Block(const std::string& text);

 private:
  void Write(const std::string& text, char end);

  const ConsoleStyle style_;
  std::ostream& out_;
  std::mutex mutex_;
  std::string bar_;  // as drawn; empty: none
};

/// Of the process's stdout.
ConsoleStyle StdoutStyle();
/// Columns of the terminal behind stdout; 80 if it doesn't say.
int StdoutColumns();

}  // namespace zerod::train
