#include "tokenizers/byte_segmenter.h"

#include "base/error.h"

namespace temper::tokenizers {

void ByteSegmenter::encode(std::string_view text, const AtStart&, std::vector<int32_t>& ids,
                           std::vector<ByteSpan>* spans) const {
  splitter_.run(text, [&](const Piece& piece) {
    size_t i = ids.size();
    bpe_.encode(piece.text, ids);
    if (!spans) return;
    const auto place = [&](size_t at) { return piece.begin + (at > piece.added ? at - piece.added : 0); };
    size_t at = 0;
    const bool whole = ids.size() == i + 1;  // most are; asking for the size would cost a cache miss
    for (; i < ids.size(); ++i) {
      const size_t end = whole ? piece.text.size() : at + vocabulary_.num_bytes(ids[i]);
      spans->push_back({place(at), place(end)});
      at = end;
    }
    invariant(at == piece.text.size(), "the tokens of a piece have other bytes than the piece");
  });
}

}  // namespace temper::tokenizers
