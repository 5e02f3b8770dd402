#include "tokenizers/models/bpe.h"

#include <algorithm>

#include "tokenizers/text/byte_level.h"
#include "tokenizers/tokens/piece_cache.h"

namespace temper::tokenizers {
namespace {

ByteIds byte_ids(const Vocabulary& vocabulary) {
  ByteIds ids{};
  for (size_t byte = 0; byte < ids.size(); ++byte) {
    const auto id = vocabulary.find(spelling_of_bytes(std::string(1, static_cast<char>(byte))));
    ids[byte] = id && vocabulary.in_model(*id) ? *id : kNoByte;
  }
  return ids;
}

}  // namespace

Bpe::Bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges, const BpeOptions& options,
         bool whole_characters, std::string_view where)
    : merges_(merges),
      byte_ids_(byte_ids(vocabulary)),
      cache_owner_(PieceCache::new_owner()),
      missing_(byte_ids_, vocabulary, options, where),
      vocabulary_(vocabulary) {
  if (whole_characters) characters_.emplace(merges_, merges, byte_ids_, vocabulary);
  if (options.ignore_merges) whole_pieces_.emplace(vocabulary);
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (piece.size() == 1)
    if (const int32_t id = byte_ids_[static_cast<unsigned char>(piece[0])]; id != kNoByte)
      return ids.push_back(id);
  PieceCache& cache = PieceCache::of_this_thread();
  const PieceCache::Key key{cache_owner_, piece};
  if (cache.get(key, ids)) return;
  const size_t start = ids.size();
  if (const int32_t token = whole(piece); token >= 0) {
    ids.push_back(token);
  } else {
    if (characters_ && !lacks_tokens(piece))
      characters_->append(piece, ids);
    else
      append_symbols(piece, ids);
    ids.resize(start + merges_.merge(std::span(ids).subspan(start)));
  }
  cache.put(key, std::span(ids).subspan(start));
}

void Bpe::append_symbols(std::string_view piece, std::vector<int32_t>& ids) const {
  const Symbols symbols = symbols_of(piece);
  ids.insert(ids.end(), symbols.ids.begin(), symbols.ids.end());
}

// What stands on both sides of a byte that is dropped becomes neighbours, as in the `tokenizers` library.
Symbols Bpe::symbols_of(std::string_view piece) const {
  Symbols out;
  ByteSpan unknown;  // not added yet
  const auto add_unknown = [&] {
    if (unknown.begin < unknown.end) out.add(missing_.unk(), unknown);
    unknown = {};
  };
  for (size_t at = 0; at < piece.size(); ++at) {
    const ByteSpan span{at, at + 1};
    if (!missing_.has(piece[at])) {
      add_unknown();
      out.add(byte_ids_[static_cast<unsigned char>(piece[at])], span);
    } else if (const auto& tokens = missing_.fallback(piece[at]); !tokens.empty()) {
      // An unknown byte before it comes after it, as in the `tokenizers` library.
      for (const int32_t token : tokens) out.add(token, span);
    } else if (missing_.unk() != kNoByte) {
      if (!missing_.fuse_unk()) add_unknown();
      unknown = {unknown.begin < unknown.end ? unknown.begin : at, span.end};
    }
  }
  add_unknown();
  return out;
}

size_t Bpe::num_dropped(std::string_view piece) const {
  if (missing_.unk() != kNoByte || whole(piece) >= 0) return 0;
  return static_cast<size_t>(std::count_if(piece.begin(), piece.end(), [&](char byte) {
    return missing_.has(byte) && missing_.fallback(byte).empty();
  }));
}

void Bpe::locate(std::string_view piece, std::span<const int32_t> ids, std::vector<ByteSpan>& spans) const {
  if (whole(piece) >= 0) return spans.push_back({0, piece.size()});
  symbols_of(piece).append_spans(ids, vocabulary_, 0, spans);
}

}  // namespace temper::tokenizers
