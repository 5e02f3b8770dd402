#include "tokenizers/models/character_tokens.h"

#include <algorithm>
#include <limits>

#include "base/utf8.h"

namespace temper::tokenizers {
namespace {

constexpr size_t kCharacters = 0x10000;
constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

unsigned char byte_at(std::string_view text, size_t at) { return static_cast<unsigned char>(text[at]); }
size_t cell(unsigned char byte, unsigned char neighbour) { return size_t{byte} * 256 + neighbour; }

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
    : bytes_(bytes) {
  // Most files have few characters that are tokens, some none.
  const auto character_of = [&](const Merge& merge) {
    const std::string_view made = vocabulary.bytes(merge.result);
    const Utf8Step step = made.size() == 2 || made.size() == 3 ? next_utf8(made) : Utf8Step{};
    return step.kind == Utf8Kind::kValid && step.size == made.size() ? step.value : char32_t{0};
  };
  if (std::none_of(merges.begin(), merges.end(), character_of)) return;
  characters_.resize(kCharacters);
  before_.assign(256 * 256, kNever);
  after_.assign(256 * 256, kNever);
  const auto count = static_cast<size_t>(vocabulary.size());
  std::vector<int> byte_of(count, kNone);
  for (int byte = 0; byte < 256; ++byte)
    if (const int32_t id = bytes[static_cast<size_t>(byte)]; id != kNoByte)
      byte_of[static_cast<size_t>(id)] = byte;
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
  for (const Merge& merge : merges)
    if (const char32_t c = character_of(merge))
      characters_[c] = merged_alone(vocabulary.bytes(merge.result), table, borders);
}

CharacterTokens::Character CharacterTokens::merged_alone(std::string_view bytes, const MergeTable& table,
                                                         const Borders& borders) const {
  const auto id = [&](size_t i) { return bytes_[byte_at(bytes, i)]; };
  for (size_t i = 0; i < bytes.size(); ++i)
    if (id(i) == kNoByte) return {};
  const MergeTable::Rule front = table.find(id(0), id(1));
  const auto with_token = [&](MergeTable::Rule last, int32_t highest, int32_t at_front, int32_t at_back) {
    const int32_t token = MergeTable::result(last);
    return borders.used_before(token, highest) ? Character() : Character{token, at_front, at_back};
  };
  if (bytes.size() == 2) {
    const int32_t rank = MergeTable::rank(front);
    return front == MergeTable::kNoRule ? Character() : with_token(front, rank, rank, rank);
  }
  const MergeTable::Rule back = table.find(id(1), id(2)), first = std::min(front, back);
  if (first == MergeTable::kNoRule) return {};
  const bool front_first = first == front;
  const int32_t part = MergeTable::result(first);
  const MergeTable::Rule second = front_first ? table.find(part, id(2)) : table.find(id(0), part);
  if (second == MergeTable::kNoRule) return {};
  // The part may be taken from outside as well, on the side where the character ends with it.
  const auto& outside = front_first ? borders.as_right : borders.as_left;
  const int32_t early = MergeTable::rank(first), late = MergeTable::rank(second),
                highest = std::max(early, late);
  if (outside[static_cast<size_t>(part)] <= late) return {};
  return with_token(second, highest, front_first ? early : highest, front_first ? highest : early);
}

void CharacterTokens::append(std::string_view piece, std::vector<int32_t>& symbols) const {
  for (size_t at = 0; at < piece.size();) {
    const size_t size = utf8_size(piece[at]), end = at + size;
    if ((size == 2 || size == 3) && !characters_.empty()) {
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
