#include "worker/neox/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <span>
#include <vector>

#include <nlohmann/json.hpp>

#include "proto/contract/error.h"
#include "worker/neox/json_text.h"

namespace zerod::neox {
namespace {

constexpr int64_t kCheckTokens = 256 * 1024;
constexpr int64_t kUint16Tokens = 65536;
constexpr uint64_t kInfoBytesMax = 1 << 20;

static_assert(std::endian::native == std::endian::little, "tokens are read as they lie");

[[noreturn]] void Fail(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::kDataLoss, Concat(path, ": ", why));
}

std::optional<int64_t> ReadCount(const nlohmann::json& info, const char* key,
                                 const std::string& path) {
  const auto found = info.find(key);
  if (found == info.end() || found->is_null()) return std::nullopt;
  if (!found->is_number_integer() || found->get<int64_t>() < 0) {
    Fail(path, Concat("\"", key, "\" is ", found->dump(), "; it must be a number from 0 on"));
  }
  return found->get<int64_t>();
}

std::optional<int> ReadTokenBytes(const nlohmann::json& info, const std::string& path) {
  const auto found = info.find("dtype");
  if (found == info.end()) return std::nullopt;
  if (*found == "uint16") return 2;
  if (*found == "uint32") return 4;
  Fail(path, Concat("\"dtype\" is ", found->dump(), "; tokens are uint16 or uint32"));
}

template <typename Token>
void Widen(const std::vector<std::byte>& raw, int64_t count, int64_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    Token token;
    std::memcpy(&token, raw.data() + i * static_cast<int64_t>(sizeof(Token)), sizeof(Token));
    out[i] = static_cast<int64_t>(token);
  }
}

}  // namespace

TokenFileInfo TokenFileInfo::Read(const std::string& tokens_path) {
  TokenFileInfo result;
  const std::string path = tokens_path + ".json";
  if (!PathExists(path)) return result;
  const nlohmann::json info = ParseJsonObject(InputFile(path).ReadAll(kInfoBytesMax), path);
  result.token_bytes = ReadTokenBytes(info, path);
  result.token_count = ReadCount(info, "tokens", path);
  result.document_end = ReadCount(info, "document_end", path);
  const auto vocabulary = info.find("vocabulary");
  if (vocabulary == info.end() || vocabulary->is_null()) return result;
  if (!vocabulary->is_string()) {
    Fail(path, Concat("\"vocabulary\" is ", vocabulary->dump(), "; it must be a file's name"));
  }
  // Relative to where the tokens are, so that both can be moved together.
  const auto folder = std::filesystem::path(tokens_path).parent_path();
  result.vocabulary_path = (folder / vocabulary->get<std::string>()).string();
  return result;
}

TokenFile::TokenFile(const std::string& path, int token_bytes)
    : file_(path), token_bytes_(token_bytes) {
  ZEROD_CHECK(token_bytes == 1 || token_bytes == 2 || token_bytes == 4, token_bytes, " bytes");
  const auto size_bytes = static_cast<int64_t>(file_.size_bytes());
  if (size_bytes == 0) Fail(path, "is empty; it must hold tokens");
  if (size_bytes % token_bytes != 0) {
    Fail(path, Concat("has ", size_bytes, " bytes, which is not a whole number of ",
                      8 * token_bytes, "-bit tokens"));
  }
  length_ = size_bytes / token_bytes;
}

void TokenFile::Read(int64_t position, int64_t count, int64_t* out) const {
  std::vector<std::byte> raw(static_cast<size_t>(count * token_bytes_));
  file_.ReadAt(static_cast<uint64_t>(position * token_bytes_), std::span(raw));
  if (token_bytes_ == 1) Widen<uint8_t>(raw, count, out);
  if (token_bytes_ == 2) Widen<uint16_t>(raw, count, out);
  if (token_bytes_ == 4) Widen<uint32_t>(raw, count, out);
}

void TokenFile::CheckVocabulary(int64_t vocab_size) const {
  std::vector<int64_t> tokens(static_cast<size_t>(std::min(length_, kCheckTokens)));
  for (int64_t position = 0; position < length_; position += kCheckTokens) {
    const int64_t count = std::min(kCheckTokens, length_ - position);
    Read(position, count, tokens.data());
    for (int64_t i = 0; i < count; ++i) {
      const int64_t token = tokens[static_cast<size_t>(i)];
      if (token < vocab_size) [[likely]]
        continue;
      Fail(path(), Concat("token ", token, " at position ", position + i,
                          " is outside the model's vocabulary of ", vocab_size));
    }
  }
}

int UsualTokenBytes(int64_t vocab_size) { return vocab_size <= kUint16Tokens ? 2 : 4; }

}  // namespace zerod::neox
