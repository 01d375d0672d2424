#include "worker/train/vocabulary.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "proto/contract/error.h"

namespace zerod::train {
namespace {

constexpr int kHexBase = 16;

std::string BytesOfHex(const std::string& line, const std::string& where) {
  std::string bytes;
  for (size_t i = 0; i < line.size(); i += 2) {
    unsigned value = 0;
    const char* const end = line.data() + std::min(i + 2, line.size());
    const auto [stop, error] = std::from_chars(line.data() + i, end, value, kHexBase);
    if (error != std::errc() || stop != line.data() + i + 2) {
      throw Error(ErrorCode::kDataLoss,
                  Concat(where, ": \"", line.substr(0, 40), "\" isn't bytes in hexadecimal"));
    }
    bytes += static_cast<char>(value);
  }
  return bytes;
}

}  // namespace

Vocabulary Vocabulary::OfBytes() {
  constexpr int kBytes = 256;
  std::vector<std::string> tokens;
  tokens.reserve(kBytes);
  for (int byte = 0; byte < kBytes; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return Vocabulary(std::move(tokens));
}

Vocabulary Vocabulary::Read(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw Error(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kDataLoss,
                Concat("cannot open the vocabulary ", path, ": ", ErrnoText(errno)));
  }
  std::vector<std::string> tokens;
  for (std::string line; std::getline(file, line);) {
    tokens.push_back(BytesOfHex(line, Concat(path, ": line ", tokens.size() + 1)));
  }
  if (tokens.empty()) throw Error(ErrorCode::kDataLoss, Concat(path, ": holds no vocabulary"));
  return Vocabulary(std::move(tokens));
}

std::vector<int64_t> Vocabulary::Encode(const std::string& text) const {
  std::unordered_map<std::string_view, int64_t> ids;
  size_t longest = 0;
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].empty()) continue;
    ids.emplace(tokens_[id], static_cast<int64_t>(id));
    longest = std::max(longest, tokens_[id].size());
  }
  std::vector<int64_t> result;
  std::string_view rest = text;
  while (!rest.empty()) {
    size_t length = std::min(longest, rest.size());
    while (length > 0 && !ids.contains(rest.substr(0, length))) --length;
    if (length == 0) {
      throw Error(
          ErrorCode::kInvalidArgument,
          Concat("no token of the vocabulary begins the text \"", rest.substr(0, 20), "\""));
    }
    result.push_back(ids.at(rest.substr(0, length)));
    rest.remove_prefix(length);
  }
  return result;
}

std::vector<int64_t> ParseIds(const std::string& text) {
  std::vector<int64_t> ids;
  for (size_t at = text.find_first_not_of(", "); at != text.npos;
       at = text.find_first_not_of(", ", at)) {
    const size_t end = std::min(text.find_first_of(", ", at), text.size());
    int64_t id = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end || id < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  Concat("\"", text.substr(at, end - at), "\" is no token id; give numbers like ",
                         "510,1416"));
    }
    ids.push_back(id);
    at = end;
  }
  return ids;
}

}  // namespace zerod::train
