#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace temper::data {

// The order in which an epoch reads the rows: a permutation drawn by (seed, epoch), or the file's own order.
class EpochOrder {
 public:
  static EpochOrder shuffled(int64_t size, uint64_t seed, int64_t epoch);
  static EpochOrder sequential() { return {}; }
  int64_t operator[](int64_t position) const {
    return rows_.empty() ? position : rows_[static_cast<size_t>(position)];
  }

 private:
  std::vector<int64_t> rows_;  // empty: sequential
};

}  // namespace temper::data
