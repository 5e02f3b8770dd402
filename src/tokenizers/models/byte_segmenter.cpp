#include "tokenizers/models/byte_segmenter.h"

#include "base/error.h"

namespace temper::tokenizers {

void ByteSegmenter::encode(std::string_view text, const Start& start, std::vector<int32_t>& ids,
                           Origins* origins) const {
  splitter_.run(text, start.continued, [&](const Piece& piece) {
    const size_t first = ids.size();
    bpe_.encode(piece.text, ids);
    if (origins) locate(piece, std::span(ids).subspan(first), *origins);
  });
}

void ByteSegmenter::locate(const Piece& piece, std::span<const int32_t> ids, Origins& origins) const {
  const auto place = [&](size_t at) { return piece.begin + (at > piece.added ? at - piece.added : 0); };
  const auto add = [&](size_t begin, size_t end) { origins.spans.push_back({place(begin), place(end)}); };
  if (bpe_.lacks_tokens(piece.text)) {
    std::vector<ByteSpan> spans;
    bpe_.locate(piece.text, ids, spans);
    for (const ByteSpan span : spans) add(span.begin, span.end);
    origins.num_dropped += bpe_.num_dropped(piece.text.substr(piece.added));
    return;
  }
  if (ids.size() == 1)
    return add(0, piece.text.size());  // most are; asking for the size would cost a cache miss
  size_t at = 0;
  for (const int32_t id : ids) {
    const size_t end = at + vocabulary_.num_bytes(id);
    add(at, end);
    at = end;
  }
  invariant(at == piece.text.size(), "the tokens of a piece have other bytes than the piece");
}

}  // namespace temper::tokenizers
