#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizers/models/merge_table.h"
#include "tokenizers/tokens/vocabulary.h"

namespace temper::tokenizers {

using ByteIds = std::array<int32_t, 256>;
constexpr int32_t kNoByte = -1;  // a byte without a token

// The symbols that merging a piece starts from. A character of two or three bytes whose bytes are sure to
// become one token, whatever is next to it, is that token from the start; this leaves a third of the
// merging of Chinese.
//
// Why it changes nothing: merging a character alone applies rules of ranks r1 (and r2) and ends in one token.
// As long as it is not complete, its next rule, of rank r, is a candidate. So a rule that takes a part of it
// across its border comes first only if its rank is below r; such rules are those that have the part on that
// side, and the table holds the least rank of them by the byte on the other side of the border. Rules that
// use the whole token must rank above r1 and r2, so that none of them comes before its time.
class CharacterTokens {
 public:
  CharacterTokens(const MergeTable& table, const std::vector<Merge>& merges, const ByteIds& bytes,
                  const Vocabulary& vocabulary);

  // Appends the symbols of a piece of valid UTF-8, each of whose bytes has a token.
  void append(std::string_view piece, std::vector<int32_t>& symbols) const;

 private:
  static constexpr int32_t kNone = -1;
  struct Character {
    int32_t token = kNone;
    int32_t first = 0,
            last = 0;  // the highest rank that is pending while the first, the last byte is a symbol
  };
  using Ranks = std::vector<int32_t>;  // [byte of the character, byte next to it]
  struct Borders;
  Character merged_alone(std::string_view bytes, const MergeTable& table, const Borders& borders) const;

  ByteIds bytes_;
  std::vector<Character> characters_;  // below U+10000; empty when none is a token
  Ranks before_, after_;  // the least rank of rules that join the byte with what ends or begins so
};

}  // namespace temper::tokenizers
