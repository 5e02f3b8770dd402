#include "tokenizers/merge_table.h"

#include <algorithm>
#include <array>
#include <functional>

namespace temper::tokenizers {
namespace {

constexpr int32_t kGone = -1, kEnd = -1;

// A place where a rule may apply. The symbols of a long piece are a doubly linked list through their
// positions.
struct Candidate {
  int32_t rank, position;
  auto operator<=>(const Candidate&) const = default;
};
struct Neighbours {
  int32_t previous, next;
};

// What merging long pieces writes to, kept from piece to piece.
struct MergeScratch {
  std::vector<Neighbours> neighbours;
  std::vector<Candidate> heap;
};

// The position of the smallest; of equal ones the first.
size_t smallest(const int32_t* ranks, size_t count) {
  int32_t least = ranks[0];
  for (size_t i = 1; i < count; ++i) least = std::min(least, ranks[i]);
  size_t at = 0;
  while (ranks[at] != least) ++at;
  return at;
}

}  // namespace

MergeTable::MergeTable(const std::vector<Merge>& merges) : low_ranks_(size_t{kLow} * kLow, kNoRule) {
  size_t capacity = 16;
  while (capacity < merges.size() * 3 / 2) capacity *= 2;
  entries_.resize(capacity);
  mask_ = capacity - 1;
  results_.reserve(merges.size());
  for (const auto& [left, right, result] : merges) {
    const auto rank = static_cast<int32_t>(results_.size());
    entries_[slot(left, right)] = {left, right, rank};
    if (left < kLow && right < kLow) low_ranks_[static_cast<size_t>(left * kLow + right)] = rank;
    results_.push_back(result);
  }
}

// The entry of this pair, or the free one where it belongs.
size_t MergeTable::slot(int32_t left, int32_t right) const {
  const uint64_t key = (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
  const uint64_t mixed = key * 0x9E3779B97F4A7C15u;
  size_t at = (mixed ^ (mixed >> 32)) & mask_;
  while ((entries_[at].left != left || entries_[at].right != right) && entries_[at].left >= 0)
    at = (at + 1) & mask_;
  return at;
}

int32_t MergeTable::rank(int32_t left, int32_t right) const {
  if ((left | right) < kLow) return low_ranks_[static_cast<size_t>(left * kLow + right)];
  return entries_[slot(left, right)].rank;
}

size_t MergeTable::merge(std::span<int32_t> symbols) const {
  if (symbols.size() < 2) return symbols.size();
  return symbols.size() < kShort ? merge_short(symbols) : merge_long(symbols);
}

// ranks[i] is that of the symbols i and i + 1; for a short piece looking at all of them is the fastest.
size_t MergeTable::merge_short(std::span<int32_t> symbols) const {
  std::array<int32_t, kShort> ranks;
  size_t pairs = symbols.size() - 1;
  for (size_t i = 0; i < pairs; ++i) ranks[i] = rank(symbols[i], symbols[i + 1]);
  while (pairs > 0) {
    const size_t at = smallest(ranks.data(), pairs);
    if (ranks[at] == kNoRule) break;
    symbols[at] = result(ranks[at]);
    --pairs;
    for (size_t i = at; i < pairs; ++i) {
      ranks[i] = ranks[i + 1];
      symbols[i + 1] = symbols[i + 2];
    }
    if (at < pairs) ranks[at] = rank(symbols[at], symbols[at + 1]);
    if (at > 0) ranks[at - 1] = rank(symbols[at - 1], symbols[at]);
  }
  return pairs + 1;
}

size_t MergeTable::merge_long(std::span<int32_t> symbols) const {
  thread_local MergeScratch scratch;
  auto& [neighbours, heap] = scratch;
  const auto count = static_cast<int32_t>(symbols.size());
  neighbours.clear();
  heap.clear();
  const auto symbol = [&](int32_t at) -> int32_t& { return symbols[static_cast<size_t>(at)]; };
  const auto beside = [&](int32_t at) -> Neighbours& { return neighbours[static_cast<size_t>(at)]; };
  for (int32_t i = 0; i < count; ++i) {
    neighbours.push_back({i - 1, i + 1 < count ? i + 1 : kEnd});
    const int32_t found = i + 1 < count ? rank(symbol(i), symbol(i + 1)) : kNoRule;
    if (found != kNoRule) heap.push_back({found, i});
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto consider = [&](int32_t at) {
    if (at == kEnd || beside(at).next == kEnd) return;
    const int32_t found = rank(symbol(at), symbol(beside(at).next));
    if (found == kNoRule) return;
    heap.push_back({found, at});
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    const auto [best, at] = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const int32_t next = beside(at).next;
    // A neighbour may have changed since the place was queued.
    if (symbol(at) == kGone || next == kEnd || rank(symbol(at), symbol(next)) != best) continue;
    symbol(at) = result(best);
    symbol(next) = kGone;
    beside(at).next = beside(next).next;
    if (beside(at).next != kEnd) beside(beside(at).next).previous = at;
    consider(beside(at).previous);
    consider(at);
  }
  return static_cast<size_t>(std::remove(symbols.begin(), symbols.end(), kGone) - symbols.begin());
}

}  // namespace temper::tokenizers
