#include "worker/train/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace zerod::train {
namespace {

constexpr const char* kEraseLine = "\r\x1b[K";
constexpr int kUsualColumns = 80;

}  // namespace

void Console::Write(const std::string& text, char end) {
  if (style_ == ConsoleStyle::kSilent) return;
  const std::lock_guard lock(mutex_);
  if (!bar_.empty()) out_ << kEraseLine;
  out_ << text;
  if (end != '\0') out_ << end;
  if (!bar_.empty()) out_ << bar_;
  out_ << std::flush;
}

void Console::Line(const std::string& text) { Write(text, '\n'); }

void Console::Block(const std::string& text) { Write(text, text.ends_with('\n') ? '\0' : '\n'); }

void Console::Bar(const std::string& text) {
  if (style_ != ConsoleStyle::kTerminal) return;
  const std::lock_guard lock(mutex_);
  bar_ = text;
  out_ << kEraseLine << bar_ << std::flush;
}

void Console::ClearBar() {
  const std::lock_guard lock(mutex_);
  if (bar_.empty()) return;
  bar_.clear();
  out_ << kEraseLine << std::flush;
}

ConsoleStyle StdoutStyle() {
  return isatty(STDOUT_FILENO) == 1 ? ConsoleStyle::kTerminal : ConsoleStyle::kPlain;
}

int StdoutColumns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualColumns;
  return size.ws_col;
}

}  // namespace zerod::train
