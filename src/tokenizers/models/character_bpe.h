#pragma once
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizers/models/bpe_options.h"
#include "tokenizers/models/character_model.h"
#include "tokenizers/models/merge_table.h"
#include "tokenizers/tokens/byte_tokens.h"
#include "tokenizers/tokens/symbols.h"
#include "tokenizers/tokens/vocabulary.h"

namespace temper::tokenizers {

// Byte-pair encoding that begins with characters, as SentencePiece's.
class CharacterBpe : public CharacterModel {
 public:
  // Errors start with `where`.
  CharacterBpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges, const BpeOptions& options,
               std::string_view where);
  void encode(std::string_view piece, std::vector<int32_t>& ids, std::vector<ByteSpan>* spans) const override;
  size_t num_dropped(std::string_view piece) const override;

 private:
  static constexpr int32_t kNone = -1;
  int32_t character(char32_t c) const;
  Symbols symbols_of(std::string_view word) const;
  void encode_word(std::string_view word, size_t begin, std::vector<int32_t>& ids,
                   std::vector<ByteSpan>* spans) const;
  size_t word_size(std::string_view text) const;

  const Vocabulary& vocabulary_;
  MergeTable merges_;
  ByteTokens bytes_;
  int32_t unk_ = kNone;
  bool fuse_unk_, ignore_merges_;
  bool words_apart_ = false;             // no rule joins what stands before a "▁" to it
  std::vector<int32_t> low_characters_;  // by code point
  std::unordered_map<char32_t, int32_t> high_characters_;
  uint64_t cache_owner_;
};

}  // namespace temper::tokenizers
