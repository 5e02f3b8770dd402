#include "tokenizers/bpe.h"

#include "base/error.h"
#include "tokenizers/byte_level.h"
#include "tokenizers/piece_cache.h"

namespace temper::tokenizers {
namespace {

ByteIds byte_ids(const Vocabulary& vocabulary, std::string_view where) {
  ByteIds ids{};
  for (size_t byte = 0; byte < ids.size(); ++byte) {
    const std::string spelling = spelling_of_bytes(std::string(1, static_cast<char>(byte)));
    const auto id = vocabulary.find(spelling);
    if (!id || !vocabulary.in_model(*id))
      fail("[{}] model.vocab has no token '{}' for the byte 0x{:02X}; all 256 are needed", where, spelling,
           byte);
    ids[byte] = *id;
  }
  return ids;
}

}  // namespace

Bpe::Bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges, bool ignore_merges,
         std::string_view where)
    : merges_(merges),
      byte_ids_(byte_ids(vocabulary, where)),
      characters_(merges_, merges, byte_ids_, vocabulary),
      cache_owner_(PieceCache::new_owner()) {
  if (ignore_merges) whole_pieces_.emplace(vocabulary);
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (piece.size() == 1) return ids.push_back(byte_ids_[static_cast<unsigned char>(piece[0])]);
  PieceCache& cache = PieceCache::of_this_thread();
  const PieceCache::Key key{cache_owner_, piece};
  if (cache.get(key, ids)) return;
  const size_t start = ids.size();
  if (const int32_t whole = whole_pieces_ ? whole_pieces_->find(piece) : -1; whole >= 0) {
    ids.push_back(whole);
  } else {
    characters_.append(piece, ids);
    ids.resize(start + merges_.merge(std::span(ids).subspan(start)));
  }
  cache.put(key, std::span(ids).subspan(start));
}

}  // namespace temper::tokenizers
