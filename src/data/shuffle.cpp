#include "data/shuffle.h"

#include <numeric>
#include <utility>

#include "base/random.h"

namespace temper::data {

EpochOrder EpochOrder::shuffled(int64_t size, uint64_t seed, int64_t epoch) {
  EpochOrder order;
  order.rows_.resize(static_cast<size_t>(size));
  std::iota(order.rows_.begin(), order.rows_.end(), int64_t{0});
  const Random random(seed, RandomPurpose::kShuffle, static_cast<uint64_t>(epoch));
  for (size_t i = order.rows_.size(); i > 1; --i)  // Fisher–Yates
    std::swap(order.rows_[i - 1], order.rows_[random.below(i, i)]);
  return order;
}

}  // namespace temper::data
