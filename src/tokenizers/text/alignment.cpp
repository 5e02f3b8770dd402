#include "tokenizers/text/alignment.h"

#include <algorithm>
#include <utility>

namespace temper::tokenizers {

size_t Alignment::part_of(size_t at) const {
  const auto after = std::upper_bound(parts_.begin(), parts_.end(), at,
                                      [](size_t value, const Part& part) { return value < part.begin; });
  return static_cast<size_t>(after - parts_.begin()) - 1;
}

ByteSpan Alignment::source(ByteSpan span) const {
  if (parts_.empty()) return {std::min(span.begin, size_), std::min(span.end, size_)};
  const Part& first = parts_[part_of(span.begin)];
  const size_t begin = first.changed
                           ? first.source.begin
                           : std::min(first.source.begin + (span.begin - first.begin), first.source.end);
  if (span.begin >= span.end) return {begin, begin};
  const Part& last = parts_[part_of(span.end - 1)];
  return {begin, last.changed ? last.source.end : last.source.begin + (span.end - last.begin)};
}

void Alignment::add(size_t begin, ByteSpan source, bool changed) {
  parts_.push_back({begin, source, changed});
}

void TextRewriter::add_part(size_t bytes, bool changed) {
  if (aligned_) out_.alignment.add(out_.text.size(), {at_, at_ + bytes}, changed);
}

void TextRewriter::keep(size_t bytes) {
  if (bytes == 0) return;
  add_part(bytes, false);
  out_.text += source_.substr(at_, bytes);
  at_ += bytes;
}

void TextRewriter::replace(size_t bytes, std::string_view text) {
  if (!text.empty()) add_part(bytes, true);
  out_.text += text;
  at_ += bytes;
}

AlignedText TextRewriter::finish() {
  keep(source_.size() - at_);
  return std::move(out_);
}

ByteSpan Alignments::source(ByteSpan span) const {
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) span = step->source(span);
  return span;
}

}  // namespace temper::tokenizers
