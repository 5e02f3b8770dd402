#include "layers/context_spans.h"

#include <algorithm>

#include "base/error.h"
#include "layers/document_pieces.h"

namespace temper::layers {
namespace {

std::vector<ContextSpan> spans_of(const TokenCut& cut, std::vector<int64_t>& firsts) {
  std::vector<std::pair<int64_t, ContextSpan>> by_first;
  for (int rank = 0; rank < cut.ranks(); ++rank) {
    ContextSpan span{.rank = rank};
    for (const TokenRange& range : cut.of(rank)) {
      if (range.count == 0) continue;
      span.count = range.count;
      by_first.emplace_back(range.first, span);
      span.first += range.count;
      ++span.place;
    }
  }
  std::sort(by_first.begin(), by_first.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<ContextSpan> spans;
  for (const auto& [first, span] : by_first) {
    firsts.push_back(first);
    spans.push_back(span);
  }
  return spans;
}

}  // namespace

bool ContextSpans::any_enters() const {
  return std::any_of(all.begin(), all.end(), [](const ContextSpan& span) { return span.enters; });
}

bool ContextSpans::any_through() const {
  return std::any_of(all.begin(), all.end(), [](const ContextSpan& span) { return span.through(); });
}

std::vector<ContextSpans::Tail> ContextSpans::before(size_t span, int64_t tokens) const {
  std::vector<Tail> tails;
  while (all[span].enters && tokens > 0) {
    const ContextSpan& other = all[--span];
    tails.push_back({span, std::min(tokens, other.last_tokens)});
    tokens -= tails.back().count;
    if (!other.through()) break;
  }
  return tails;
}

ContextSpans context_spans(const DecoderInput& input) {
  invariant(input.continued.empty(), "documents that continue others have no order in which states pass");
  const auto starts = input.cu_seqlens.values<int32_t>();
  ContextSpans spans;
  std::vector<int64_t> firsts;
  spans.all = spans_of(input.cut, firsts);
  std::vector<std::pair<int64_t, size_t>> own;  // by the first of the rank's tokens
  for (size_t s = 0; s < spans.all.size(); ++s) {
    ContextSpan& span = spans.all[s];
    const int64_t end = firsts[s] + span.count;
    spans.most = std::max(spans.most, span.place + 1);
    for_each_piece(starts, firsts[s], end, [&](size_t document, int32_t from, int32_t until) {
      const int64_t tokens = until - from;
      if (span.pieces++ == 0) span.first_tokens = tokens;
      span.last_tokens = tokens;
      span.enters = span.enters || starts[document] < firsts[s];
      span.leaves = span.leaves || starts[document + 1] > end;
    });
    if (span.rank == input.cut.place()) own.emplace_back(span.first, s);
  }
  std::sort(own.begin(), own.end());
  std::vector<int32_t> own_starts{0};
  for (const auto& [first, s] : own) {
    spans.own.push_back(s);
    spans.all[s].first_piece = std::ssize(own_starts) - 1;
    for_each_piece(
        starts, firsts[s], firsts[s] + spans.all[s].count,
        [&](size_t, int32_t from, int32_t until) { own_starts.push_back(own_starts.back() + until - from); });
  }
  spans.starts = Tensor::from(own_starts);
  return spans;
}

}  // namespace temper::layers
