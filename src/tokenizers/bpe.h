#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizers/character_tokens.h"
#include "tokenizers/merge_table.h"
#include "tokenizers/vocabulary.h"
#include "tokenizers/whole_pieces.h"

namespace temper::tokenizers {

// Byte-pair encoding of one piece of text over bytes.
class Bpe {
 public:
  // With ignore_merges a piece that is itself a token is that token, whatever the merges say.
  // Every byte needs a token; the Error that says otherwise starts with `where`.
  Bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges, bool ignore_merges,
      std::string_view where);

  void encode(std::string_view piece, std::vector<int32_t>& ids) const;  // appends; the piece is valid UTF-8

 private:
  MergeTable merges_;
  ByteIds byte_ids_;
  CharacterTokens characters_;
  std::optional<WholePieces> whole_pieces_;  // with ignore_merges
  uint64_t cache_owner_;
};

}  // namespace temper::tokenizers
