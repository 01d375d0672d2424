#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zerod::tidy {

/// One text file of the tree, as the checks see it. A value; nothing here touches the disk but
/// ReadTree.
struct Source {
  std::string path;  // relative to the root, with '/'
  std::string text;
  std::string code;  // `text` without comments and literals, same lines; empty if it isn't C++
};

/// What a check found: "path:line: what is wrong; what to do instead".
using Findings = std::vector<std::string>;

/// Builds a Source from a path and its content.
Source MakeSource(std::string path, std::string text);

/// All text files below `root` but those that git ignores by convention (build*/, __pycache__/) and
/// .git itself. Throws std::filesystem::filesystem_error if it can't be read.
std::vector<Source> ReadTree(const std::string& root);

/// Names directly in `root` that aren't hidden and not build folders, sorted.
std::vector<std::string> TopLevelEntries(const std::string& root);

/// C++ text with comments, string and character literals and preprocessor lines replaced by spaces,
/// so that a search finds code only. Line breaks stay where they are. Include lines are blanked
/// too.
std::string BlankOut(std::string_view text);

/// Lines without their line breaks. A final line break doesn't start another line.
std::vector<std::string_view> Lines(std::string_view text);

/// True if the path ends so, e.g. IsKind(path, {".h", ".cc"}).
bool IsKind(std::string_view path, std::initializer_list<std::string_view> endings);

/// .h, .cc or .cu.
bool IsCpp(std::string_view path);

/// Position of the next `word` in `text` at or after `from` that isn't a part of a longer
/// identifier at an end where `word` itself has an identifier character; npos if there is none.
size_t FindWord(std::string_view text, std::string_view word, size_t from = 0);

/// Number of the line (from 1) that holds this position.
int LineOf(std::string_view text, size_t position);

/// Formats one finding.
std::string Finding(const Source& source, int line, std::string_view message);

}  // namespace zerod::tidy
