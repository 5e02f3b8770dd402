#include "layers/context_keys.h"

#include <algorithm>

#include "layers/document_pieces.h"

namespace temper::layers {
namespace {

using Rows = std::vector<int32_t>;  // of the pass

void append_rows(int32_t first, int32_t end, Rows& rows) {
  for (int32_t row = first; row < end; ++row) rows.push_back(row);
}

// Rising, each once, without those of `own`.
Rows others_of(Rows seen, std::span<const TokenRange> own) {
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  std::erase_if(seen, [&](int32_t row) {
    return std::any_of(own.begin(), own.end(), [&](const TokenRange& range) {
      return row >= range.first && row < range.first + range.count;
    });
  });
  return seen;
}

// Of each token of a pass its place among the own ones; 0 of others.
Rows places_of(std::span<const TokenRange> own, int64_t tokens) {
  Rows places(static_cast<size_t>(tokens));
  int32_t next = 0;
  for (const TokenRange& range : own)
    for (int64_t token = range.first; token < range.first + range.count; ++token)
      places[static_cast<size_t>(token)] = next++;
  return places;
}

}  // namespace

// Of the queries of one rank.
struct ContextDocuments::Pieces {
  Rows starts_q{0}, starts_k{0}, seen;
};

ContextDocuments::ContextDocuments(const DecoderInput& input, TokenCut cut)
    : continued_(input.continued), cut_(std::move(cut)) {
  const auto starts = input.cu_seqlens.values<int32_t>();
  starts_.assign(starts.begin(), starts.end());
}

ContextDocuments::Pieces ContextDocuments::pieces_of(int rank, int64_t window) const {
  Pieces all;
  for (const TokenRange& range : cut_.of(rank))
    for_each_piece(
        starts_, range.first, range.first + range.count, [&](size_t d, int32_t from, int32_t until) {
          // As many keys as the first query sees with those of the others, nearest first.
          const int64_t sees = window > 0 ? until - from + window - 1 : until;
          const auto most = static_cast<int32_t>(std::min<int64_t>(sees, until));
          const int32_t first = std::max(starts_[d], until - most),
                        before = continued_.empty() ? -1 : continued_[d];
          if (before >= 0) {
            const int32_t end = starts_[static_cast<size_t>(before) + 1], left = most - (until - first);
            append_rows(std::max(starts_[static_cast<size_t>(before)], end - left), end, all.seen);
          }
          append_rows(first, until, all.seen);
          all.starts_q.push_back(all.starts_q.back() + until - from);
          all.starts_k.push_back(static_cast<int32_t>(all.seen.size()));
        });
  return all;
}

const ContextKeys& ContextDocuments::of(int64_t window) const {
  const auto found = made_.find(window);
  return found != made_.end() ? found->second : made_.emplace(window, made(window)).first->second;
}

ContextKeys ContextDocuments::made(int64_t window) const {
  Pieces own = pieces_of(cut_.place(), window);
  const Tensor starts_q = Tensor::from(own.starts_q), starts_k = Tensor::from(own.starts_k);
  if (window == 0) return {starts_q, starts_k, {Tensor::from(own.seen), cut_.tokens(), true}};
  const Rows wanted = others_of(own.seen, cut_.own());
  const int64_t own_tokens = cut_.tokens_of(cut_.place());
  // Where the rank finds each token of the pass: among its own ones, or behind them where it comes.
  Rows places = places_of(cut_.own(), cut_.tokens()), given;
  int64_t found = own_tokens;
  std::vector<int64_t> send, receive;
  for (int rank = 0; rank < cut_.ranks(); ++rank) {
    const bool other = rank != cut_.place();
    const Rows its = other ? others_of(pieces_of(rank, window).seen, cut_.of(rank)) : Rows();
    const TokenCut::Chosen come = cut_.chosen(other ? wanted : Rows(), rank),
                           go = cut_.chosen(its, cut_.place());
    for (const size_t index : come.index)
      places[static_cast<size_t>(wanted[index])] = static_cast<int32_t>(found++);
    given.insert(given.end(), go.position.begin(), go.position.end());
    receive.push_back(std::ssize(come.index));
    send.push_back(std::ssize(go.index));
  }
  for (int32_t& row : own.seen) row = places[static_cast<size_t>(row)];
  return {starts_q,
          starts_k,
          {Tensor::from(own.seen), found, true},
          TokenFetch{{Tensor::from(given), own_tokens, true}, std::move(send), std::move(receive)}};
}

}  // namespace temper::layers
