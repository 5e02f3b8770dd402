#include "tokenizers/models/character_bpe.h"

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizers/tokens/piece_cache.h"

namespace temper::tokenizers {
namespace {

constexpr std::string_view kWordMark = "\u2581";  // SentencePiece's space
constexpr size_t kLowCharacters = 0x10000;

// Whether a word mark follows something else.
bool has_inner_mark(std::string_view spelling) {
  bool after_other = false;
  while (!spelling.empty()) {
    const bool mark = spelling.starts_with(kWordMark);
    if (mark && after_other) return true;
    after_other = !mark;
    spelling.remove_prefix(next_utf8(spelling).size);
  }
  return false;
}

}  // namespace

CharacterBpe::CharacterBpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges,
                           const BpeOptions& options, std::string_view where)
    : vocabulary_(vocabulary),
      merges_(merges),
      bytes_(options.byte_fallback ? ByteTokens(vocabulary) : ByteTokens()),
      fuse_unk_(options.fuse_unk),
      ignore_merges_(options.ignore_merges),
      low_characters_(kLowCharacters, kNone),
      cache_owner_(PieceCache::new_owner()) {
  if (!options.unk_token.empty()) {
    const auto id = vocabulary.find(options.unk_token);
    if (id && vocabulary.in_model(*id))
      unk_ = *id;
    else if (!bytes_.complete())
      fail("[{}] model.unk_token is '{}', which vocab does not have", where, options.unk_token);
  }
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string& spelling = vocabulary.spelling(id);
    if (spelling.empty() || !vocabulary.in_model(id)) continue;
    const Utf8Step step = next_utf8(spelling);
    if (step.size != spelling.size()) continue;
    if (step.value < kLowCharacters)
      low_characters_[step.value] = id;
    else
      high_characters_.emplace(step.value, id);
  }
  words_apart_ = character(next_utf8(kWordMark).value) != kNone;
  for (const Merge& merge : merges) words_apart_ &= !has_inner_mark(vocabulary.spelling(merge.result));
}

int32_t CharacterBpe::character(char32_t c) const {
  if (c < kLowCharacters) return low_characters_[c];
  const auto found = high_characters_.find(c);
  return found == high_characters_.end() ? kNone : found->second;
}

Symbols CharacterBpe::symbols_of(std::string_view word) const {
  Symbols out;
  ByteSpan unknown;  // not added yet
  const auto add_unknown = [&] {
    if (unknown.begin < unknown.end && unk_ != kNone) out.add(unk_, unknown);
    unknown = {};
  };
  for (size_t at = 0; at < word.size();) {
    const Utf8Step step = next_utf8(word.substr(at));
    const ByteSpan span{at, at + step.size};
    at = span.end;
    const int32_t id = character(step.value);
    if (id != kNone) {
      add_unknown();
      out.add(id, span);
    } else if (const auto bytes = word.substr(span.begin, step.size); bytes_.covers(bytes)) {
      // An unknown character before it comes after it, as in the `tokenizers` library.
      for (const char byte : bytes) out.add(bytes_.id(byte), span);
    } else {
      if (!fuse_unk_) add_unknown();
      unknown = {unknown.begin < unknown.end ? unknown.begin : span.begin, span.end};
    }
  }
  add_unknown();
  return out;
}

void CharacterBpe::encode_word(std::string_view word, size_t begin, std::vector<int32_t>& ids,
                               std::vector<ByteSpan>* spans) const {
  PieceCache& cache = PieceCache::of_this_thread();
  const PieceCache::Key key{cache_owner_, word};
  if (!spans && cache.get(key, ids)) return;
  const Symbols symbols = symbols_of(word);
  std::vector<int32_t> merged = symbols.ids;
  merged.resize(merges_.merge(merged));
  ids.insert(ids.end(), merged.begin(), merged.end());
  if (!spans) return cache.put(key, merged);
  symbols.append_spans(merged, vocabulary_, begin, *spans);
}

// Up to the next word mark that begins a word.
size_t CharacterBpe::word_size(std::string_view text) const {
  if (!words_apart_) return text.size();
  size_t begin = 0;
  while (text.substr(begin).starts_with(kWordMark)) begin += kWordMark.size();
  return std::min(text.find(kWordMark, begin), text.size());
}

void CharacterBpe::encode(std::string_view piece, std::vector<int32_t>& ids,
                          std::vector<ByteSpan>* spans) const {
  if (ignore_merges_)
    if (const auto whole = vocabulary_.find(piece); whole && vocabulary_.in_model(*whole)) {
      ids.push_back(*whole);
      if (spans) spans->push_back({0, piece.size()});
      return;
    }
  for (size_t at = 0; at < piece.size();) {
    const std::string_view word = piece.substr(at, word_size(piece.substr(at)));
    encode_word(word, at, ids, spans);
    at += word.size();
  }
}

size_t CharacterBpe::num_dropped(std::string_view piece) const {
  if (unk_ != kNone || bytes_.complete()) return 0;
  if (ignore_merges_)
    if (const auto whole = vocabulary_.find(piece); whole && vocabulary_.in_model(*whole)) return 0;
  size_t dropped = 0;
  for (std::string_view rest = piece; !rest.empty();) {
    const Utf8Step step = next_utf8(rest);
    if (character(step.value) == kNone && !bytes_.covers(rest.substr(0, step.size))) dropped += step.size;
    rest.remove_prefix(step.size);
  }
  return dropped;
}

}  // namespace temper::tokenizers
