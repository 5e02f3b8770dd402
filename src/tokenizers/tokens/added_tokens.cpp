#include "tokenizers/tokens/added_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizers/text/component.h"
#include "tokenizers/text/pattern.h"
#include "tokenizers/unicode/characters.h"

namespace temper::tokenizers {
namespace {

bool is_space(std::string_view character) { return is_white_space(next_utf8(character).value); }

std::string_view first_character(std::string_view text) { return text.substr(0, next_utf8(text).size); }

bool is_word(std::string_view character) {
  static const Pattern pattern = Pattern::regex(fmt::format("[{}]", word_items()), "added_tokens");
  return pattern.find(character, 0).has_value();
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const std::string_view before = text.substr(0, begin), after = text.substr(end);
  return (before.empty() || !is_word(last_utf8(before))) &&
         (after.empty() || !is_word(first_character(after)));
}

}  // namespace

size_t TokenTrie::child(size_t node, char byte) const {
  for (const auto& [label, next] : nodes_[node].next)
    if (label == byte) return next;
  return 0;
}

void TokenTrie::add(std::string_view content, size_t token) {
  if (content.empty()) return;
  bool& starts = first_bytes_[static_cast<unsigned char>(content[0])];
  if (!starts) ++num_first_bytes_;
  starts = true;
  first_byte_ = content[0];
  size_t node = 0;
  for (const char byte : content) {
    size_t next = child(node, byte);
    if (next == 0) {
      next = nodes_.size();
      nodes_[node].next.emplace_back(byte, next);
      nodes_.emplace_back();
    }
    node = next;
  }
  if (nodes_[node].token == kNoToken) nodes_[node].token = token;
}

// Where the next byte stands that a token may begin with.
size_t TokenTrie::next_start(std::string_view text, size_t from) const {
  if (num_first_bytes_ == 1) return std::min(text.find(first_byte_, from), text.size());
  while (from < text.size() && !first_bytes_[static_cast<unsigned char>(text[from])]) ++from;
  return from;
}

TokenTrie::Match TokenTrie::find(std::string_view text, size_t from) const {
  if (num_first_bytes_ == 0) return {text.size(), text.size()};
  for (size_t begin = next_start(text, from); begin < text.size(); begin = next_start(text, begin + 1)) {
    Match longest{begin, begin};
    size_t node = 0;
    for (size_t at = begin; at < text.size() && (node = child(node, text[at])) != 0; ++at)
      if (nodes_[node].token != kNoToken) longest = {begin, at + 1, nodes_[node].token};
    if (longest.token != kNoToken) return longest;
  }
  return {text.size(), text.size()};
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer)
    : tokens_(std::move(tokens)) {
  for (const bool special : {true, false})  // of tokens that are the same in the text the first counts
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const AddedToken& token = tokens_[i];
      if (token.special != special) continue;
      if (token.special) special_.insert(token.id);
      if (token.normalized)
        normalized_.add(normalizer.normalize(token.content), i);
      else
        raw_.add(token.content, i);
    }
}

AddedToken AddedTokens::read(const Json& entry, const std::string& place) {
  if (!entry.is_object()) fail("{} must be an object, found {}", place, entry.kind_name());
  AddedToken token;
  token.content = string_option(entry, "content", "", place);
  if (token.content.empty()) fail("{}.content must be a text of at least one character", place);
  token.special = bool_option(entry, "special", false, place);
  token.normalized = bool_option(entry, "normalized", !token.special, place);
  token.single_word = bool_option(entry, "single_word", false, place);
  token.lstrip = bool_option(entry, "lstrip", false, place);
  token.rstrip = bool_option(entry, "rstrip", false, place);
  return token;
}

std::vector<AddedToken> AddedTokens::from_json(const Json& list, std::string_view where) {
  if (list.is_null()) return {};
  if (!list.is_array()) fail("{} must be an array, found {}", where, list.kind_name());
  std::vector<AddedToken> tokens;
  for (const Json& entry : list.as_array()) {
    const std::string place = fmt::format("{}[{}]", where, tokens.size());
    AddedToken token = read(entry, place);
    token.id = as_token_id(required(entry, "id", place), place + ".id");
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void AddedTokens::split_by(const TokenTrie& trie, std::string_view text, const Uses& uses) const {
  size_t done = 0;
  for (size_t from = 0; from < text.size();) {
    TokenTrie::Match match = trie.find(text, from);
    if (match.token == TokenTrie::kNoToken) break;
    from = match.end;
    const AddedToken& token = tokens_[match.token];
    if (token.single_word && !stands_alone(text, match.begin, match.end)) continue;
    if (token.lstrip) {
      while (match.begin > done && is_space(last_utf8(text.substr(0, match.begin))))
        match.begin -= last_utf8(text.substr(0, match.begin)).size();
      match.begin = std::max(match.begin, done);
    }
    if (token.rstrip)
      while (match.end < text.size() && is_space(text.substr(match.end)))
        match.end += next_utf8(text.substr(match.end)).size;
    if (done < match.begin) uses.text(text.substr(done, match.begin - done));
    if (match.begin < match.end) uses.token(token.id, text.substr(match.begin, match.end - match.begin));
    done = match.end;  // a match inside what rstrip took counts again, as it does in the `tokenizers` library
  }
  if (done < text.size()) uses.text(text.substr(done));
}

bool AddedTokens::looks_around() const {
  return std::any_of(tokens_.begin(), tokens_.end(),
                     [](const AddedToken& token) { return token.single_word; });
}

}  // namespace temper::tokenizers
