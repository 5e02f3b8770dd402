#include "tokenizers/character_tokens.h"

#include <algorithm>

#include "base/utf8.h"

namespace temper::tokenizers {
namespace {

constexpr size_t kCharacters = 0x10000;
constexpr int32_t kNever = MergeTable::kNoRule;

unsigned char byte_at(std::string_view text, size_t at) { return static_cast<unsigned char>(text[at]); }
size_t cell(unsigned char byte, unsigned char beside) { return size_t{byte} * 256 + beside; }

void lower(int32_t& least, int32_t rank) { least = std::min(least, rank); }

}  // namespace

// By token: the least rank of the rules that have it on their left, on their right.
struct CharacterTokens::Borders {
  std::vector<int32_t> as_left, as_right;
  bool used_before(int32_t token, int32_t rank) const {
    const auto at = static_cast<size_t>(token);
    return as_left[at] <= rank || as_right[at] <= rank;
  }
};

CharacterTokens::CharacterTokens(const MergeTable& table, const std::vector<Merge>& merges,
                                 const ByteIds& bytes, const Vocabulary& vocabulary)
    : bytes_(bytes), characters_(kCharacters), before_(256 * 256, kNever), after_(256 * 256, kNever) {
  const auto count = static_cast<size_t>(vocabulary.size());
  std::vector<int> byte_of(count, kNone);
  for (int byte = 0; byte < 256; ++byte)
    byte_of[static_cast<size_t>(bytes[static_cast<size_t>(byte)])] = byte;
  Borders borders{std::vector(count, kNever), std::vector(count, kNever)};
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto rank = static_cast<int32_t>(i);
    const auto left = static_cast<size_t>(merges[i].left), right = static_cast<size_t>(merges[i].right);
    lower(borders.as_left[left], rank);
    lower(borders.as_right[right], rank);
    const auto byte = [](int value) { return static_cast<unsigned char>(value); };
    if (byte_of[right] != kNone)
      lower(before_[cell(byte(byte_of[right]), byte(vocabulary.bytes(merges[i].left).back()))], rank);
    if (byte_of[left] != kNone)
      lower(after_[cell(byte(byte_of[left]), byte(vocabulary.bytes(merges[i].right).front()))], rank);
  }
  std::string text;
  for (char32_t c = 0x80; c < kCharacters; ++c) {
    text.clear();
    append_utf8(text, c);
    characters_[c] = merged_alone(text, table, borders);
  }
}

CharacterTokens::Character CharacterTokens::merged_alone(std::string_view bytes, const MergeTable& table,
                                                         const Borders& borders) const {
  const auto id = [&](size_t i) { return bytes_[byte_at(bytes, i)]; };
  const int32_t front = table.rank(id(0), id(1));
  if (bytes.size() == 2) {
    if (front == kNever || borders.used_before(table.result(front), front)) return {};
    return {table.result(front), front, front};
  }
  const int32_t back = table.rank(id(1), id(2));
  const bool front_first = front <= back;
  const int32_t first = std::min(front, back);
  if (first == kNever) return {};
  const int32_t part = table.result(first);
  const int32_t second = front_first ? table.rank(part, id(2)) : table.rank(id(0), part);
  if (second == kNever) return {};
  // The part may be taken from outside as well, on the side where the character ends with it.
  const auto& outside = front_first ? borders.as_right : borders.as_left;
  const int32_t highest = std::max(first, second);
  if (outside[static_cast<size_t>(part)] <= second || borders.used_before(table.result(second), highest))
    return {};
  return {table.result(second), front_first ? first : highest, front_first ? highest : first};
}

void CharacterTokens::append(std::string_view piece, std::vector<int32_t>& symbols) const {
  for (size_t at = 0; at < piece.size();) {
    const size_t size = utf8_size(piece[at]), end = at + size;
    if (size == 2 || size == 3) {
      const Character& character = characters_[valid_utf8(piece.data() + at).value];
      const bool alone =
          character.token != kNone &&
          (at == 0 || before_[cell(byte_at(piece, at), byte_at(piece, at - 1))] > character.first) &&
          (end == piece.size() ||
           after_[cell(byte_at(piece, end - 1), byte_at(piece, end))] > character.last);
      if (alone) {
        symbols.push_back(character.token);
        at = end;
        continue;
      }
    }
    for (; at < end; ++at) symbols.push_back(bytes_[byte_at(piece, at)]);
  }
}

}  // namespace temper::tokenizers
