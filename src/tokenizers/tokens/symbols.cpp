#include "tokenizers/tokens/symbols.h"

namespace temper::tokenizers {

void Symbols::add(int32_t id, ByteSpan span) {
  ids.push_back(id);
  spans.push_back(span);
}

void Symbols::append_spans(std::span<const int32_t> merged, const Vocabulary& vocabulary, size_t begin,
                           std::vector<ByteSpan>& out) const {
  size_t first = 0;
  for (const int32_t id : merged) {  // a token is spelled as the symbols it was merged from
    size_t last = first, size = vocabulary.spelling(ids[first]).size();
    while (size < vocabulary.spelling(id).size()) size += vocabulary.spelling(ids[++last]).size();
    out.push_back({begin + spans[first].begin, begin + spans[last].end});
    first = last + 1;
  }
}

}  // namespace temper::tokenizers
