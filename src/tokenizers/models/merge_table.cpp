#include "tokenizers/models/merge_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

#include "base/threads/per_thread.h"

namespace temper::tokenizers {
namespace {

constexpr int32_t kGone = -1, kEnd = -1;
constexpr size_t kMostScratch = size_t{1} << 20;  // symbols whose room a thread keeps

// A place where a rule may apply. The symbols of a long piece are a doubly linked list through their
// positions.
struct Candidate {
  MergeTable::Rule rule;
  int32_t position;
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

uint64_t hash(int32_t left, int32_t right) {
  const uint64_t key = (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
  const uint64_t mixed = key * 0x9E3779B97F4A7C15u;
  return mixed ^ (mixed >> 32);
}

// Where in the filter a pair has its bit; other bits of the hash than those that find the entry.
struct FilterBit {
  FilterBit(uint64_t hash, size_t words)
      : word((hash >> 26) & (words - 1)), mask(uint64_t{1} << ((hash >> 20) & 63)) {}
  size_t word;
  uint64_t mask;
};

}  // namespace

MergeTable::MergeTable(const std::vector<Merge>& merges)
    : filter_(std::clamp(std::bit_ceil(merges.size() / 4 + 1), size_t{64}, kFilterWords)) {
  if (merges.size() >= kLow) low_rules_.assign(size_t{kLow} * kLow, kNoRule);
  size_t capacity = 16;
  while (capacity < merges.size() * 3 / 2) capacity *= 2;
  entries_.resize(capacity);
  mask_ = capacity - 1;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right, result] = merges[rank];
    const Rule rule = Rule{rank} << 32 | static_cast<uint32_t>(result);
    entries_[slot(left, right)] = {left, right, rule};
    if (!low_rules_.empty() && left < kLow && right < kLow)
      low_rules_[static_cast<size_t>(left * kLow + right)] = rule;
    const FilterBit bit(hash(left, right), filter_.size());
    filter_[bit.word] |= bit.mask;
  }
}

// The entry of this pair, or the free one where it belongs.
size_t MergeTable::slot(int32_t left, int32_t right) const {
  size_t at = hash(left, right) & mask_;
  while ((entries_[at].left != left || entries_[at].right != right) && entries_[at].left >= 0)
    at = (at + 1) & mask_;
  return at;
}

MergeTable::Rule MergeTable::find(int32_t left, int32_t right) const {
  if ((left | right) < kLow && !low_rules_.empty())
    return low_rules_[static_cast<size_t>(left * kLow + right)];
  const FilterBit bit(hash(left, right), filter_.size());
  if (!(filter_[bit.word] & bit.mask)) return kNoRule;
  return entries_[slot(left, right)].rule;
}

size_t MergeTable::merge(std::span<int32_t> symbols) const {
  if (symbols.size() < 2) return symbols.size();
  return symbols.size() < kShort ? merge_short(symbols) : merge_long(symbols);
}

// rules[i] is that of the symbols i and i + 1; for a short piece looking at all of them is the fastest.
size_t MergeTable::merge_short(std::span<int32_t> symbols) const {
  std::array<Rule, kShort> rules;
  size_t pairs = symbols.size() - 1;
  for (size_t i = 0; i < pairs; ++i) rules[i] = find(symbols[i], symbols[i + 1]);
  while (pairs > 0) {
    const auto at =
        static_cast<size_t>(std::min_element(rules.begin(), rules.begin() + pairs) - rules.begin());
    if (rules[at] == kNoRule) break;
    symbols[at] = result(rules[at]);
    --pairs;
    for (size_t i = at; i < pairs; ++i) {
      rules[i] = rules[i + 1];
      symbols[i + 1] = symbols[i + 2];
    }
    if (at < pairs) rules[at] = find(symbols[at], symbols[at + 1]);
    if (at > 0) rules[at - 1] = find(symbols[at - 1], symbols[at]);
  }
  return pairs + 1;
}

size_t MergeTable::merge_long(std::span<int32_t> symbols) const {
  static const PerThread<MergeScratch> scratches;
  MergeScratch& scratch = scratches.get();
  auto& neighbours = scratch.neighbours;
  auto& heap = scratch.heap;
  const auto count = static_cast<int32_t>(symbols.size());
  neighbours.clear();
  heap.clear();
  const auto symbol = [&](int32_t at) -> int32_t& { return symbols[static_cast<size_t>(at)]; };
  const auto links = [&](int32_t at) -> Neighbours& { return neighbours[static_cast<size_t>(at)]; };
  for (int32_t i = 0; i < count; ++i) {
    neighbours.push_back({i - 1, i + 1 < count ? i + 1 : kEnd});
    const Rule found = i + 1 < count ? find(symbol(i), symbol(i + 1)) : kNoRule;
    if (found != kNoRule) heap.push_back({found, i});
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto consider = [&](int32_t at) {
    if (at == kEnd || links(at).next == kEnd) return;
    const Rule found = find(symbol(at), symbol(links(at).next));
    if (found == kNoRule) return;
    heap.push_back({found, at});
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    const auto [best, at] = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const int32_t next = links(at).next;
    // A neighbour may have changed since the place was queued.
    if (symbol(at) == kGone || next == kEnd || find(symbol(at), symbol(next)) != best) continue;
    symbol(at) = result(best);
    symbol(next) = kGone;
    links(at).next = links(next).next;
    if (links(at).next != kEnd) links(links(at).next).previous = at;
    consider(links(at).previous);
    consider(at);
  }
  const auto kept = std::remove(symbols.begin(), symbols.end(), kGone);
  if (symbols.size() > kMostScratch) scratch = {};
  return static_cast<size_t>(kept - symbols.begin());
}

}  // namespace temper::tokenizers
