#include "client/ctl/table.h"

#include <algorithm>
#include <utility>

#include "proto/contract/error.h"

namespace zerod::ctl {
namespace {

/// Columns that a text takes: bytes that continue a UTF-8 character take none.
size_t WidthOf(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

std::string Printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

void Table::AddRow(std::vector<std::string> cells) {
  ZEROD_CHECK(cells.size() == columns_.size(), cells.size(), " cells for ", columns_.size());
  for (std::string& cell : cells) cell = Printable(std::move(cell));
  rows_.push_back(std::move(cells));
}

std::string Table::Render() const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  std::vector<std::vector<std::string>> lines = {titles};
  lines.insert(lines.end(), rows_.begin(), rows_.end());

  std::vector<size_t> widths(columns_.size(), 0);
  for (const std::vector<std::string>& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], WidthOf(line[i]));
  }
  std::string text;
  for (const std::vector<std::string>& line : lines) {
    std::string row;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string padding(widths[i] - WidthOf(line[i]), ' ');
      const bool right = columns_[i].align == Align::kRight;
      row += (i == 0 ? "" : "  ") + (right ? padding + line[i] : line[i] + padding);
    }
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace zerod::ctl
