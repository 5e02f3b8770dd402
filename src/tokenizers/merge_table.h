#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace temper::tokenizers {

// One rule: two neighbours become one token. Rules apply in the order of their ranks.
struct Merge {
  int32_t left, right, result;
};

// The rules of a byte-pair encoding (Sennrich et al., "Neural Machine Translation of Rare Words with Subword
// Units", ACL 2016), and what they make of a piece of text.
class MergeTable {
 public:
  explicit MergeTable(const std::vector<Merge>& merges);

  // Replaces the symbols by the tokens they merge to and returns how many these are: always the rule of the
  // lowest rank, where it applies first. O(n log n); nothing is allocated for less than kShort symbols.
  size_t merge(std::span<int32_t> symbols) const;
  static constexpr size_t kShort = 64;

  static constexpr int32_t kNoRule = std::numeric_limits<int32_t>::max();
  int32_t rank(int32_t left, int32_t right) const;  // kNoRule when they do not merge
  int32_t result(int32_t rank) const { return results_[static_cast<size_t>(rank)]; }

 private:
  static constexpr int32_t kLow = 256;  // ids of bytes, most often; their pairs have a table without hashing
  struct Entry {
    int32_t left = -1, right = -1, rank = kNoRule;
  };
  size_t slot(int32_t left, int32_t right) const;
  size_t merge_short(std::span<int32_t> symbols) const;
  size_t merge_long(std::span<int32_t> symbols) const;

  std::vector<Entry> entries_;  // open addressing
  size_t mask_ = 0;
  std::vector<int32_t> low_ranks_;  // [kLow, kLow]
  std::vector<int32_t> results_;    // by rank
};

}  // namespace temper::tokenizers
