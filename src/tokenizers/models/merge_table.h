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
  static constexpr size_t kShort = 64, kFilterWords = size_t{1} << 15;

  // A rule's rank and, below it, its result: the smallest applies first.
  using Rule = uint64_t;
  static constexpr Rule kNoRule = std::numeric_limits<Rule>::max();
  Rule find(int32_t left, int32_t right) const;
  static int32_t rank(Rule rule) { return static_cast<int32_t>(rule >> 32); }
  static int32_t result(Rule rule) { return static_cast<int32_t>(rule & 0xFFFFFFFFu); }

 private:
  static constexpr int32_t kLow =
      256;  // ids of bytes, most often; their pairs have a table without hashing, but in small files
  struct Entry {
    int32_t left = -1, right = -1;
    Rule rule = kNoRule;
  };
  size_t slot(int32_t left, int32_t right) const;
  size_t merge_short(std::span<int32_t> symbols) const;
  size_t merge_long(std::span<int32_t> symbols) const;

  std::vector<Entry> entries_;  // open addressing
  size_t mask_ = 0;
  std::vector<uint64_t>
      filter_;                   // a bit by the hash of each pair: most pairs have no rule, and this is small
  std::vector<Rule> low_rules_;  // [kLow, kLow]
};

}  // namespace temper::tokenizers
