#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/json/json.h"
#include "tokenizers/text/normalizer.h"
#include "tokenizers/tokens/vocabulary.h"

namespace temper::tokenizers {

// A token that is recognized in the text itself, before any splitting and merging.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
  bool normalized = false;              // looked for in the normalized text
  bool single_word = false;             // only where no word character is next to it
  bool lstrip = false, rstrip = false;  // takes the white space before, after it
};

// Finds the leftmost of a set of tokens, of those the longest.
class TokenTrie {
 public:
  static constexpr size_t kNoToken = ~size_t{0};
  struct Match {
    size_t begin, end;
    size_t token = kNoToken;
  };
  TokenTrie() : nodes_(1) {}
  void add(std::string_view content, size_t token);
  Match find(std::string_view text, size_t from) const;

 private:
  struct Node {
    size_t token = kNoToken;
    std::vector<std::pair<char, size_t>> next;
  };
  size_t child(size_t node, char byte) const;  // 0 when there is none
  size_t next_start(std::string_view text, size_t from) const;
  std::vector<Node> nodes_;
  bool first_bytes_[256] = {};
  int num_first_bytes_ = 0;
  char first_byte_ = 0;  // one of them
};

class AddedTokens {
 public:
  AddedTokens() = default;
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer);
  static std::vector<AddedToken> from_json(const Json& list, std::string_view where);
  static AddedToken read(const Json& entry, const std::string& place);  // without its id

  // A stretch of text between tokens, or a token's id and the text it took; both views lie in what is split.
  struct Uses {
    std::function<void(std::string_view)> text;
    std::function<void(int32_t, std::string_view)> token;
  };
  // First the tokens of the raw text; each stretch between them is normalized and split by the others.
  void split_raw(std::string_view text, const Uses& uses) const { split_by(raw_, text, uses); }
  void split_normalized(std::string_view text, const Uses& uses) const { split_by(normalized_, text, uses); }
  bool is_special(int32_t id) const { return special_.contains(id); }
  bool looks_around() const;  // some are found only where no word character is next to them

 private:
  void split_by(const TokenTrie& trie, std::string_view text, const Uses& uses) const;
  std::vector<AddedToken> tokens_;
  TokenTrie raw_, normalized_;
  std::unordered_set<int32_t> special_;
};

}  // namespace temper::tokenizers
