#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizers/models/bpe_options.h"
#include "tokenizers/models/character_tokens.h"
#include "tokenizers/models/merge_table.h"
#include "tokenizers/models/missing_bytes.h"
#include "tokenizers/tokens/symbols.h"
#include "tokenizers/tokens/vocabulary.h"
#include "tokenizers/tokens/whole_pieces.h"

namespace temper::tokenizers {

// Byte-pair encoding of one piece of text over bytes. A piece is valid UTF-8 if `whole_characters`, or any
// bytes.
class Bpe {
 public:
  // Errors start with `where`.
  Bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges, const BpeOptions& options,
      bool whole_characters, std::string_view where);

  void encode(std::string_view piece, std::vector<int32_t>& ids) const;  // appends

  // Whether the piece has bytes without a token of their own; how many of these become none.
  bool lacks_tokens(std::string_view piece) const { return missing_.are_in(piece); }
  size_t num_dropped(std::string_view piece) const;
  // Appends the bytes of such a piece that each of its tokens covers.
  void locate(std::string_view piece, std::span<const int32_t> ids, std::vector<ByteSpan>& spans) const;

 private:
  int32_t whole(std::string_view piece) const { return whole_pieces_ ? whole_pieces_->find(piece) : -1; }
  Symbols symbols_of(std::string_view piece) const;
  void append_symbols(std::string_view piece, std::vector<int32_t>& ids) const;

  MergeTable merges_;
  ByteIds byte_ids_;
  std::optional<CharacterTokens> characters_;  // for whole characters
  std::optional<WholePieces> whole_pieces_;    // with ignore_merges
  uint64_t cache_owner_;
  MissingBytes missing_;
  const Vocabulary& vocabulary_;
};

}  // namespace temper::tokenizers
