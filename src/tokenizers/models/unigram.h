#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/models/character_model.h"
#include "tokenizers/tokens/byte_tokens.h"
#include "tokenizers/tokens/prefix_trie.h"
#include "tokenizers/tokens/vocabulary.h"

namespace temper::tokenizers {

// The segmentation with the best sum of scores (Kudo, "Subword Regularization", ACL 2018), in time linear in
// the piece's length times that of the longest token. A character without a token counts as unk_id with a
// score 10 below the worst; neighbours of these become one token, or the tokens of their bytes.
class Unigram : public CharacterModel {
 public:
  // The token i of the vocabulary has scores[i]. Errors start with `where`.
  Unigram(const Vocabulary& vocabulary, std::vector<double> scores, std::optional<int32_t> unk_id,
          bool byte_fallback, std::string_view where);
  void encode(std::string_view piece, std::vector<int32_t>& ids, std::vector<ByteSpan>* spans) const override;

 private:
  struct Node;
  std::vector<ByteSpan> best_path(std::string_view piece) const;
  void add_token(std::string_view piece, ByteSpan span, std::vector<int32_t>& ids,
                 std::vector<ByteSpan>* spans) const;

  const Vocabulary& vocabulary_;
  std::vector<double> scores_;
  double unk_score_ = 0;
  std::optional<int32_t> unk_;
  ByteTokens bytes_;
  PrefixTrie trie_;
  std::string where_;
};

}  // namespace temper::tokenizers
