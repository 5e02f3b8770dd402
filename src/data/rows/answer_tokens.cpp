#include "data/rows/answer_tokens.h"

#include <algorithm>
#include <array>
#include <optional>

namespace temper::data {
namespace {

using tokenizers::Encoding;

// Whether the tokens of a text from `begin` to `place` (the first of them is `first`) are those of this part
// alone.
bool are_alone(std::string_view text, size_t begin, size_t place, const Encoding& tokens, size_t first,
               const Tokenizer& tokenizer) {
  const Encoding alone = tokenizer.encode_with_offsets(text.substr(begin, place - begin));
  const size_t end = first + alone.ids.size();
  return end <= tokens.ids.size() &&
         std::equal(alone.ids.begin(), alone.ids.end(),
                    tokens.ids.begin() + static_cast<std::ptrdiff_t>(first)) &&
         (alone.ids.empty() || tokens.spans[end - 1].end <= place) &&
         (end == tokens.ids.size() || tokens.spans[end].begin >= place);
}

// Whether the tokens of a text up to a place are those of this part alone. As special tokens divide a text,
// what stands behind the last of them is compared first; so do words for most tokenizers.
bool is_border(std::string_view text, const Encoding& tokens, size_t place, const Tokenizer& tokenizer) {
  const auto is_special = [&](size_t i) { return tokenizer.is_special(tokens.ids[i]); };
  size_t begin = 0;
  while (begin < tokens.ids.size() && tokens.spans[begin].end == 0 && is_special(begin))
    ++begin;  // what the tokenizer puts before texts
  size_t end = begin;
  while (end < tokens.ids.size() && tokens.spans[end].end <= place) ++end;
  if (end < tokens.ids.size() && tokens.spans[end].begin < place) return false;  // a token holds the place
  const bool at_words = tokenizer.splits_at_words();
  for (size_t i = end; i-- > begin + 1;) {
    const size_t at = tokens.spans[i].begin;
    const bool special = is_special(i);
    const bool first = tokens.spans[i - 1].end <= at;  // of the tokens of a character
    if (!special && !(at_words && first && at + 2 <= place && tokenizers::is_word_border(text, at))) continue;
    if (are_alone(text, at, place, tokens, i, tokenizer)) return true;
    if (at_words) return false;
    break;
  }
  return are_alone(text, 0, place, tokens, begin, tokenizer);
}

// The tokens from `begin` to `end` begin inside the span; white space behind a special token at its end is
// left out. `last`: the last of them.
struct Inside {
  size_t begin, end;
  std::optional<int32_t> last;
};
Inside tokens_in(const Encoding& tokens, ByteSpan span, const Tokenizer& tokenizer) {
  size_t begin = 0, end = tokens.ids.size();
  while (begin < end && tokens.spans[begin].begin < span.begin) ++begin;
  while (end > begin && tokens.spans[end - 1].begin >= span.end) --end;
  size_t last = end;
  while (last > begin && trim(tokenizer.token_bytes(tokens.ids[last - 1])).empty()) --last;
  if (last > begin && tokenizer.is_special(tokens.ids[last - 1])) end = last;
  return {begin, end, end > begin ? std::optional(tokens.ids[end - 1]) : std::nullopt};
}

// Marks the special token that follows a turn and the white space before it, if one does.
void mask_end(const Encoding& tokens, size_t end, const Tokenizer& tokenizer, std::vector<uint8_t>& mask) {
  size_t first = 0;
  while (first < tokens.ids.size() && tokens.spans[first].begin < end) ++first;
  size_t next = first;
  while (next < tokens.ids.size() && trim(tokenizer.token_bytes(tokens.ids[next])).empty()) ++next;
  if (next == tokens.ids.size() || !tokenizer.is_special(tokens.ids[next])) return;
  for (size_t i = first; i <= next; ++i) mask[i] = 1;
}

void cut_behind_targets(Example& example) {
  while (!example.loss_mask.empty() && !example.loss_mask.back()) {
    example.loss_mask.pop_back();
    example.ids.pop_back();
  }
}

size_t begin_of(const TurnSpan& turn) { return turn.asked.value_or(turn.bytes.begin); }

// Where the text must be cut for the turn; ascending.
std::vector<size_t> cuts_for(const TurnSpan& turn, std::string_view text, const Encoding& tokens,
                             const Tokenizer& tokenizer) {
  std::vector<size_t> cuts;
  const size_t begin = begin_of(turn), end = turn.bytes.end;
  if (!is_border(text, tokens, begin, tokenizer)) cuts.push_back(begin);
  if (end == text.size()) return cuts;
  const std::optional<int32_t> last = tokens_in(tokens, turn.bytes, tokenizer).last;
  if (last && !tokenizer.is_special(*last) && !is_border(text, tokens, end, tokenizer)) cuts.push_back(end);
  return cuts;
}

Example masked(Encoding tokens, const std::vector<TurnSpan>& turns, const Tokenizer& tokenizer) {
  Example example;
  example.loss_mask.assign(tokens.ids.size(), 0);
  for (const TurnSpan& turn : turns) {
    const Inside inside = tokens_in(tokens, turn.bytes, tokenizer);
    for (size_t i = inside.begin; i < inside.end; ++i) example.loss_mask[i] = 1;
    if (turn.open) mask_end(tokens, turn.bytes.end, tokenizer, example.loss_mask);
  }
  example.ids = std::move(tokens.ids);
  example.bytes_dropped = static_cast<int64_t>(tokens.num_dropped);
  return example;
}

Example trained_in_full(Encoding tokens) {
  const size_t size = tokens.ids.size();
  return {std::move(tokens.ids), std::vector<uint8_t>(size, 1), {}, static_cast<int64_t>(tokens.num_dropped)};
}

}  // namespace

std::vector<Example> tokenize_turns(const ChatText& text, const Tokenizer& tokenizer) {
  Encoding whole = tokenizer.encode_with_offsets(text.text);
  std::vector<Example> examples;
  std::vector<TurnSpan> together;
  std::vector<size_t> cuts;
  for (size_t i = 0; i < text.assistant.size(); ++i) {
    const TurnSpan& turn = text.assistant[i];
    const bool last = i + 1 == text.assistant.size();
    cuts = cuts_for(turn, text.text, whole, tokenizer);
    if (cuts.empty() || last) {
      together.push_back(turn);
      continue;
    }
    const auto until = std::string_view(text.text).substr(0, text.assistant[i + 1].bytes.begin);
    examples.push_back(masked(tokenizer.encode_parts(until, cuts), {turn}, tokenizer));
    cut_behind_targets(examples.back());
  }
  if (!cuts.empty()) whole = tokenizer.encode_parts(text.text, cuts);
  examples.push_back(masked(std::move(whole), together, tokenizer));
  if (text.continued) cut_behind_targets(examples.back());
  return examples;
}

Example tokenize_all(std::string_view text, const std::vector<size_t>& answers, const Tokenizer& tokenizer) {
  Encoding whole = tokenizer.encode_with_offsets(text);
  std::vector<size_t> cuts;
  for (const size_t answer : answers)
    if (!is_border(text, whole, answer, tokenizer)) cuts.push_back(answer);
  return trained_in_full(cuts.empty() ? std::move(whole) : tokenizer.encode_parts(text, cuts));
}

Example tokenize_answer(std::string_view text, size_t answer, bool all, const Tokenizer& tokenizer) {
  Encoding tokens = tokenizer.encode_with_offsets(text, true);
  if (answer > 0 && !is_border(text, tokens, answer, tokenizer))
    tokens = tokenizer.encode_parts(text, std::array{answer}, true);
  if (all || answer == 0) return trained_in_full(std::move(tokens));
  return masked(std::move(tokens), {{{answer, text.size()}}}, tokenizer);
}

}  // namespace temper::data
