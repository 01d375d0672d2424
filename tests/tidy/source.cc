#include "tests/tidy/source.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace zerod::tidy {
namespace {

namespace fs = std::filesystem;

bool IsIdentifier(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool IsBuildFolder(const std::string& name) {
  return name.starts_with("build") || name == "__pycache__" || name == ".git";
}

bool IsText(const std::string& path) {
  return IsKind(path, {".h", ".cc", ".cu", ".py", ".sh", ".proto", ".cmake", ".md", ".toml", ".yml",
                       ".yaml", ".supp", "CMakeLists.txt", ".ci/run", ".clang-tidy"});
}

// Blanks `out[begin, end)` but its line breaks.
void Blank(std::string& out, size_t begin, size_t end) {
  for (size_t i = begin; i < std::min(end, out.size()); ++i) {
    if (out[i] != '\n') out[i] = ' ';
  }
}

// End of the literal that opens with the quote at `begin`, past its closing quote.
size_t LiteralEnd(std::string_view text, size_t begin) {
  const bool raw = text[begin] == '"' && begin > 0 && text[begin - 1] == 'R';
  if (raw) {
    const size_t paren = text.find('(', begin);
    if (paren == text.npos) return text.size();
    const std::string closing = ")" + std::string(text.substr(begin + 1, paren - begin - 1)) + "\"";
    const size_t end = text.find(closing, paren);
    return end == text.npos ? text.size() : end + closing.size();
  }
  for (size_t i = begin + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == text[begin] || text[i] == '\n') {
      return i + 1;
    }
  }
  return text.size();
}

// End of the preprocessor line that starts at `begin`, with its continuation lines.
size_t DirectiveEnd(std::string_view text, size_t begin) {
  size_t end = text.find('\n', begin);
  while (end != text.npos && end > 0 && text[end - 1] == '\\') end = text.find('\n', end + 1);
  return end == text.npos ? text.size() : end;
}

// End of what starts at `i` and isn't code, or `i` if code starts there.
size_t NonCodeEnd(std::string_view text, size_t i, bool line_is_empty) {
  if (text.substr(i, 2) == "//") return std::min(text.find('\n', i), text.size());
  if (text.substr(i, 2) == "/*") {
    const size_t end = text.find("*/", i + 2);
    return end == text.npos ? text.size() : end + 2;
  }
  if (text[i] == '#' && line_is_empty) return DirectiveEnd(text, i);
  const bool digit_separator = text[i] == '\'' && i > 0 && IsIdentifier(text[i - 1]);
  if (text[i] == '"' || (text[i] == '\'' && !digit_separator)) return LiteralEnd(text, i);
  return i;
}

}  // namespace

Source MakeSource(std::string path, std::string text) {
  std::string code = IsCpp(path) ? BlankOut(text) : "";
  return Source{std::move(path), std::move(text), std::move(code)};
}

std::vector<Source> ReadTree(const std::string& root) {
  std::vector<Source> sources;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::end(it); ++it) {
    if (it->is_directory()) {
      if (IsBuildFolder(it->path().filename().string())) it.disable_recursion_pending();
      continue;
    }
    const std::string path = fs::relative(it->path(), root).generic_string();
    if (!it->is_regular_file() || !IsText(path)) continue;
    std::ifstream file(it->path(), std::ios::binary);
    sources.push_back(MakeSource(path, {std::istreambuf_iterator<char>(file), {}}));
  }
  std::sort(sources.begin(), sources.end(),
            [](const Source& a, const Source& b) { return a.path < b.path; });
  return sources;
}

std::vector<std::string> TopLevelEntries(const std::string& root) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(".") && !IsBuildFolder(name)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string BlankOut(std::string_view text) {
  std::string out(text);
  bool line_is_empty = true;
  for (size_t i = 0; i < text.size();) {
    const size_t end = NonCodeEnd(text, i, line_is_empty);
    if (end > i) {
      Blank(out, i, end);
      i = end;
      continue;
    }
    if (text[i] == '\n') line_is_empty = true;
    if (!std::isspace(static_cast<unsigned char>(text[i]))) line_is_empty = false;
    ++i;
  }
  return out;
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text = end == text.npos ? "" : text.substr(end + 1);
  }
  return lines;
}

bool IsKind(std::string_view path, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return path.ends_with(ending); });
}

bool IsCpp(std::string_view path) { return IsKind(path, {".h", ".cc", ".cu"}); }

size_t FindWord(std::string_view text, std::string_view word, size_t from) {
  for (size_t at = text.find(word, from); at != text.npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool joined_before = at > 0 && IsIdentifier(text[at - 1]) && IsIdentifier(word.front());
    const bool joined_after =
        end < text.size() && IsIdentifier(text[end]) && IsIdentifier(word.back());
    if (!joined_before && !joined_after) return at;
  }
  return text.npos;
}

int LineOf(std::string_view text, size_t position) {
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + position, '\n'));
}

std::string Finding(const Source& source, int line, std::string_view message) {
  return source.path + ":" + std::to_string(line) + ": " + std::string(message);
}

}  // namespace zerod::tidy
