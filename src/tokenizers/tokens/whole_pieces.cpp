#include "tokenizers/tokens/whole_pieces.h"

#include <algorithm>
#include <functional>

#include "tokenizers/text/byte_level.h"

namespace temper::tokenizers {
namespace {

uint64_t piece_hash(std::string_view piece) { return std::hash<std::string_view>()(piece); }

}  // namespace

WholePieces::WholePieces(const Vocabulary& vocabulary) : vocabulary_(&vocabulary) {
  size_t capacity = 16;
  while (capacity < static_cast<size_t>(vocabulary.size()) * 2) capacity *= 2;
  entries_.resize(capacity);
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.has(id) || !vocabulary.in_model(id)) continue;
    const std::string_view bytes = vocabulary.bytes(id);
    if (spelling_of_bytes(bytes) != vocabulary.spelling(id)) continue;
    const uint64_t hash = piece_hash(bytes);
    size_t at = hash & (capacity - 1);
    while (entries_[at].id >= 0) at = (at + 1) & (capacity - 1);
    entries_[at] = {static_cast<uint32_t>(hash >> 32), id};
    longest_ = std::max(longest_, bytes.size());
  }
}

int32_t WholePieces::find(std::string_view piece) const {
  if (piece.size() > longest_) return -1;
  const uint64_t hash = piece_hash(piece);
  const auto check = static_cast<uint32_t>(hash >> 32);
  for (size_t at = hash & (entries_.size() - 1); entries_[at].id >= 0; at = (at + 1) & (entries_.size() - 1))
    if (entries_[at].hash == check && vocabulary_->bytes(entries_[at].id) == piece) return entries_[at].id;
  return -1;
}

}  // namespace temper::tokenizers
