#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizers/vocabulary.h"

namespace temper::tokenizers {

class PieceCache;

// One rule: two neighbours become one token. Rules apply in the order of their ranks.
struct Merge {
  int32_t left, right, result;
};

// Open-addressing map from a pair of neighbours to (rank, result).
class MergeTable {
 public:
  struct Entry {
    uint64_t key = kFree;
    uint32_t rank = 0;
    int32_t result = 0;
  };
  explicit MergeTable(const std::vector<Merge>& merges);
  const Entry* find(int32_t left, int32_t right) const;

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  size_t slot(uint64_t key) const;
  std::vector<Entry> entries_;
  size_t mask_ = 0;
};

// Joins neighbours by the rules until none fits, in O(n log n).
void merge_symbols(const MergeTable& merges, std::vector<int32_t>& symbols);

// Byte-pair encoding of one piece of text (Sennrich et al., "Neural Machine Translation of Rare Words with
// Subword Units", ACL 2016) over bytes; O(n log n) in the piece's length.
class Bpe {
 public:
  // With ignore_merges a piece that is itself a token is that token, whatever the merges say.
  // Every byte needs a token; the Error that says otherwise starts with `where`.
  Bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges, bool ignore_merges,
      std::string_view where);
  ~Bpe();

  void encode(std::string_view piece, std::vector<int32_t>& ids) const;  // appends

 private:
  void merge(std::string_view piece, std::vector<int32_t>& ids) const;
  MergeTable merges_;
  std::array<int32_t, 256> byte_ids_{};
  std::unordered_map<std::string_view, int32_t> whole_pieces_;  // filled only with ignore_merges
  std::unique_ptr<PieceCache> cache_;
};

}  // namespace temper::tokenizers
