#pragma once

#include <string>
#include <vector>

namespace zerod::ctl {

/// Text in aligned columns, two spaces apart, no space at the ends of lines.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// One cell per column. Control characters become '?': names come from other processes.
  void AddRow(std::vector<std::string> cells);

  std::string Render() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Replaces control characters, which could drive a terminal, by '?'.
std::string Printable(std::string text);

}  // namespace zerod::ctl
