#include "tests/tidy/lengths.h"

#include <algorithm>
#include <cctype>

namespace zerod::tidy {
namespace {

std::string_view Trim(std::string_view text) {
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

int Columns(std::string_view line) {
  // Continuation bytes of UTF-8 are 10xxxxxx.
  return static_cast<int>(std::count_if(
      line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; }));
}

// `head` is the code between the last ; { or } and an opening brace.
bool OpensFunction(std::string_view head) {
  if (head.find('(') == head.npos) return false;
  for (std::string_view word : {"class", "struct", "union", "enum", "namespace"}) {
    if (head.starts_with(word) && FindWord(head, word) == 0) return false;
  }
  return true;
}

bool OpensTest(std::string_view head) {
  return head.starts_with("TEST(") || head.starts_with("TEST_F(") || head.starts_with("TEST_P(") ||
         head.starts_with("TYPED_TEST");
}

void CheckBody(const Source& source, size_t head, size_t end, Findings& findings) {
  const bool test = OpensTest(std::string_view(source.code).substr(head));
  const int limit = test ? kMaxTestLines : kMaxFunctionLines;
  const int first = LineOf(source.code, head);
  const int lines = LineOf(source.code, end) - first + 1;
  if (lines > limit) {
    findings.push_back(Finding(source, first,
                               (test ? "test of " : "function of ") + std::to_string(lines) +
                                   " lines; split it, the limit is " + std::to_string(limit)));
  }
}

Findings CheckCppFunctions(const Source& source) {
  Findings findings;
  const std::string_view code = source.code;
  int depth = 0;           // of all braces
  int function_depth = 0;  // of the brace that opened the function we are in, 0 outside
  size_t head = 0, function_head = 0;
  for (size_t i = 0; i < code.size(); ++i) {
    if (code[i] == ';' && function_depth == 0) head = i + 1;
    if (code[i] == '{') {
      ++depth;
      const std::string_view text = Trim(code.substr(head, i - head));
      if (function_depth == 0 && OpensFunction(text)) {
        function_depth = depth;
        function_head = text.data() - code.data();
      }
      head = i + 1;
    }
    if (code[i] == '}') {
      if (function_depth == depth && depth > 0) {
        CheckBody(source, function_head, i, findings);
        function_depth = 0;
      }
      --depth;
      head = i + 1;
    }
  }
  return findings;
}

size_t Indent(std::string_view line) { return std::min(line.find_first_not_of(' '), line.size()); }

Findings CheckPythonFunctions(const Source& source) {
  Findings findings;
  const auto lines = Lines(source.text);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!Trim(lines[i]).starts_with("def ")) continue;
    size_t last = i;
    for (size_t j = i + 1; j < lines.size(); ++j) {
      const std::string_view text = Trim(lines[j]);
      if (text.empty() || text.starts_with(")")) continue;
      if (Indent(lines[j]) <= Indent(lines[i])) break;
      last = j;
    }
    const int count = static_cast<int>(last - i + 1);
    if (count > kMaxFunctionLines) {
      findings.push_back(Finding(source, static_cast<int>(i + 1),
                                 "function of " + std::to_string(count) +
                                     " lines; split it, the limit is " +
                                     std::to_string(kMaxFunctionLines)));
    }
  }
  return findings;
}

}  // namespace

Findings CheckLengths(const Source& source) {
  Findings findings;
  if (!IsCpp(source.path) &&
      !IsKind(source.path, {".py", ".sh", ".proto", ".cmake", "CMakeLists.txt"})) {
    return findings;
  }
  const auto lines = Lines(source.text);
  if (lines.size() > kMaxFileLines) {
    findings.push_back(Finding(source, kMaxFileLines + 1,
                               "file of " + std::to_string(lines.size()) +
                                   " lines; split it, the limit is " +
                                   std::to_string(kMaxFileLines)));
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    if (Columns(lines[i]) > kMaxLineColumns) {
      findings.push_back(
          Finding(source, static_cast<int>(i + 1), "line of more than 100 columns; break it"));
    }
  }
  return findings;
}

Findings CheckFunctions(const Source& source) {
  if (IsCpp(source.path)) return CheckCppFunctions(source);
  if (IsKind(source.path, {".py"})) return CheckPythonFunctions(source);
  return {};
}

}  // namespace zerod::tidy
