#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "worker/neox/input_file.h"

namespace zerod::neox {

/// What FILE.json beside a token file FILE says of it (deploy/tokenize.py writes both). What isn't
/// there isn't known.
struct TokenFileInfo {
  std::optional<int> token_bytes;       ///< 2 or 4, from "dtype": uint16 or uint32
  std::optional<int64_t> token_count;   ///< "tokens"
  std::optional<int64_t> document_end;  ///< "document_end": the token behind each document
  std::string vocabulary_path;          ///< "vocabulary": file of each token's bytes; or empty

  /// Reads `tokens_path`.json; without that file nothing is known. Throws Error(kDataLoss) that
  /// names file and key for anything else than a well-formed description.
  static TokenFileInfo Read(const std::string& tokens_path);
};

/// A flat file of little-endian tokens of 1 (text), 2 or 4 bytes. Reads by position; threads may
/// read at the same time. Throws Error (kNotFound without the file, else kDataLoss) with the path.
class TokenFile {
 public:
  /// Refuses an empty file and one whose size isn't a multiple of `token_bytes`.
  TokenFile(const std::string& path, int token_bytes);

  const std::string& path() const { return file_.path(); }
  int64_t length() const { return length_; }

  /// out[i] = token position + i, for `count` tokens that the file has.
  void Read(int64_t position, int64_t count, int64_t* out) const;

  /// Reads the whole file once and refuses a token that isn't below `vocab_size`, with its place.
  void CheckVocabulary(int64_t vocab_size) const;

 private:
  InputFile file_;
  int token_bytes_;
  int64_t length_;
};

/// Bytes of a token where nobody says it: 2 if a vocabulary of this size fits, else 4.
int UsualTokenBytes(int64_t vocab_size);

}  // namespace zerod::neox
