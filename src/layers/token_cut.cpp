#include "layers/token_cut.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace temper::layers {
namespace {

int64_t count_of(std::span<const TokenRange> ranges) {
  int64_t count = 0;
  for (const TokenRange& range : ranges) count += range.count;
  return count;
}

// f(range, where its tokens begin among those of the rank).
template <class F>
void for_each_range(std::span<const TokenRange> ranges, const F& f) {
  int64_t before = 0;
  for (const TokenRange& range : ranges) {
    f(range, before);
    before += range.count;
  }
}

// Behind the others of a rank.
void append(const TokenRange& range, std::vector<TokenRange>& own) {
  if (!own.empty() && own.back().first + own.back().count == range.first)
    own.back().count += range.count;
  else
    own.push_back(range);
}

}  // namespace

TokenCut::TokenCut(std::vector<std::vector<TokenRange>> ranges, int place)
    : ranges_(std::move(ranges)), place_(place) {}

TokenCut TokenCut::of_parts(std::span<const int64_t> lengths, int ranks, int place) {
  if (ranks == 1) return {};
  std::vector<std::vector<TokenRange>> ranges(static_cast<size_t>(ranks));
  int64_t first = 0;
  for (const int64_t length : lengths) {
    const int64_t each = div_exact(length, ranks);
    for (std::vector<TokenRange>& own : ranges) {
      append({first, each}, own);
      first += each;
    }
  }
  return {std::move(ranges), place};
}

TokenCut TokenCut::balanced(std::span<const int64_t> lengths, std::span<const int64_t> costs, int ranks,
                            int members, int place) {
  if (ranks == 1) return {};
  const auto groups = static_cast<size_t>(div_exact(ranks, members)), pieces = 2 * groups;
  std::vector<std::vector<TokenRange>> ranges(static_cast<size_t>(ranks));
  int64_t first = 0;
  for (const int64_t length : lengths) {
    const int64_t each = div_exact(length, std::ssize(ranges) * 2) * members, own_each = 2 * each / members;
    std::vector<std::pair<int64_t, int64_t>> by_cost;  // and where each piece begins
    for (size_t piece = 0; piece < pieces; ++piece, first += each) {
      const auto own = costs.subspan(static_cast<size_t>(first), static_cast<size_t>(each));
      by_cost.emplace_back(std::accumulate(own.begin(), own.end(), int64_t{0}), first);
    }
    std::sort(by_cost.begin(), by_cost.end());
    for (size_t group = 0; group < groups; ++group) {
      const auto [early, late] = std::minmax(by_cost[group].second, by_cost[pieces - 1 - group].second);
      for (int64_t member = 0; member < members; ++member) {
        std::vector<TokenRange>& own =
            ranges[group * static_cast<size_t>(members) + static_cast<size_t>(member)];
        const int64_t begin = member * own_each, end = begin + own_each;  // of both pieces' tokens
        if (begin < each) append({early + begin, std::min(end, each) - begin}, own);
        if (end > each) append({late + std::max(begin - each, int64_t{0}), end - std::max(begin, each)}, own);
      }
    }
  }
  return {std::move(ranges), place};
}

int64_t TokenCut::tokens() const {
  int64_t count = 0;
  for (int rank = 0; rank < ranks(); ++rank) count += tokens_of(rank);
  return count;
}

int64_t TokenCut::tokens_of(int rank) const { return count_of(of(rank)); }

bool TokenCut::is_in_order() const {
  int64_t next = 0;
  for (const std::vector<TokenRange>& own : ranges_)
    for (const TokenRange& range : own) {
      if (range.first != next) return false;
      next += range.count;
    }
  return true;
}

bool TokenCut::is_even() const {
  for (int rank = 1; rank < ranks(); ++rank)
    if (tokens_of(rank) != tokens_of(0)) return false;
  return true;
}

TokenCut::Chosen TokenCut::chosen(std::span<const int32_t> tokens, int rank) const {
  Chosen found;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (is_whole()) {
      found.index.push_back(i);
      found.position.push_back(tokens[i]);
      continue;
    }
    for_each_range(of(rank), [&](const TokenRange& range, int64_t before) {
      const int64_t place = tokens[i] - range.first;
      if (place < 0 || place >= range.count) return;
      found.index.push_back(i);
      found.position.push_back(static_cast<int32_t>(before + place));
    });
  }
  return found;
}

Tensor TokenCut::own_of(const Tensor& all, int dim) const {
  if (is_whole()) return all;
  Shape shape = all.shape();
  shape[dim] = tokens_of(place_);
  const Tensor own = Tensor::empty(shape, all.dtype(), MemoryTag::kData, all.device());
  for_each_range(this->own(), [&](const TokenRange& range, int64_t before) {
    own.narrow(dim, before, range.count).copy_from(all.narrow(dim, range.first, range.count));
  });
  return own;
}

void TokenCut::put(int rank, const Tensor& its, const Tensor& all) const {
  for_each_range(of(rank), [&](const TokenRange& range, int64_t before) {
    all.narrow(0, range.first, range.count).copy_from(its.narrow(0, before, range.count));
  });
}

void TokenCut::take(int rank, const Tensor& all, const Tensor& its) const {
  for_each_range(of(rank), [&](const TokenRange& range, int64_t before) {
    its.narrow(0, before, range.count).copy_from(all.narrow(0, range.first, range.count));
  });
}

Tensor TokenCut::in_order(const Tensor& by_rank) const {
  if (is_in_order()) return by_rank;
  const Tensor all =
      Tensor::empty(by_rank.shape(), by_rank.dtype(), MemoryTag::kActivations, by_rank.device());
  int64_t first = 0;
  for (int rank = 0; rank < ranks(); first += tokens_of(rank++))
    put(rank, by_rank.narrow(0, first, tokens_of(rank)), all);
  return all;
}

Tensor TokenCut::by_rank(const Tensor& all) const {
  if (is_in_order()) return all;
  const Tensor by_rank = Tensor::empty(all.shape(), all.dtype(), MemoryTag::kActivations, all.device());
  int64_t first = 0;
  for (int rank = 0; rank < ranks(); first += tokens_of(rank++))
    take(rank, all, by_rank.narrow(0, first, tokens_of(rank)));
  return by_rank;
}

TokenCut TokenCut::of_groups(int members) const {
  if (members == ranks()) return {};
  std::vector<std::vector<TokenRange>> groups(static_cast<size_t>(div_exact(ranks(), members)));
  for (size_t group = 0; group < groups.size(); ++group) {
    std::vector<TokenRange> all;
    for (int member = 0; member < members; ++member) {
      const auto its = of(static_cast<int>(group) * members + member);
      all.insert(all.end(), its.begin(), its.end());
    }
    std::sort(all.begin(), all.end(),
              [](const TokenRange& a, const TokenRange& b) { return a.first < b.first; });
    for (const TokenRange& range : all) append(range, groups[group]);
  }
  return {std::move(groups), place_ / members};
}

TokenCut TokenCut::in_group(int members) const {
  if (members == 1 || is_whole()) return {};
  const TokenCut groups = of_groups(members);
  const std::vector<TokenRange> all{{0, tokens()}};
  const std::span<const TokenRange> own = groups.is_whole() ? std::span(all) : groups.own();
  std::vector<std::vector<TokenRange>> ranges(static_cast<size_t>(members));
  for (size_t member = 0; member < ranges.size(); ++member)
    for (const TokenRange& range : of(place_ / members * members + static_cast<int>(member)))
      for_each_range(own, [&](const TokenRange& group, int64_t before) {
        const int64_t begin = std::max(range.first, group.first),
                      end = std::min(range.first + range.count, group.first + group.count);
        if (begin < end) append({before + begin - group.first, end - begin}, ranges[member]);
      });
  return {std::move(ranges), place_ % members};
}

TokenCut TokenCut::part(int64_t first, int64_t count) const {
  if (is_whole()) return {};
  std::vector<std::vector<TokenRange>> ranges(ranges_.size());
  for (size_t rank = 0; rank < ranges.size(); ++rank)
    for (const TokenRange& range : ranges_[rank]) {
      const int64_t begin = std::max(range.first, first),
                    end = std::min(range.first + range.count, first + count);
      if (begin < end) ranges[rank].push_back({begin - first, end - begin});
    }
  return {std::move(ranges), place_};
}

}  // namespace temper::layers
