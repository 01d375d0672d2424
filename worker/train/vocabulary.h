#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zerod::train {

/// The bytes of every token, so that ids become text and a prompt becomes ids. A plain value.
class Vocabulary {
 public:
  /// A token is a byte.
  static Vocabulary OfBytes();

  /// A file of deploy/tokenize.py: line i holds the bytes of token i in hexadecimal; an empty line
  /// is a token that isn't text, such as an end of document. Throws Error (kNotFound without the
  /// file, else kDataLoss) with file and line.
  static Vocabulary Read(const std::string& path);

  /// tokens()[id] are the bytes of that id.
  const std::vector<std::string>& tokens() const { return tokens_; }

  /// Cuts a text into tokens, the longest that fits each time. That is a text of the same bytes,
  /// but not always the cut of the tokenizer, which `deploy/tokenize.py --encode` gives. Throws
  /// Error(kInvalidArgument) with the first byte that no token begins with.
  std::vector<int64_t> Encode(const std::string& text) const;

 private:
  explicit Vocabulary(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {}

  std::vector<std::string> tokens_;
};

/// Ids from "510, 1416 44": numbers with commas or blanks between. Throws Error(kInvalidArgument)
/// that names the text's first part which is no id.
std::vector<int64_t> ParseIds(const std::string& text);

}  // namespace zerod::train
