#include "exchange/coverage.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/error.h"

namespace temper::exchange {
namespace {

// Compared with a flag for each element: random runs, alone and as columns, of a matrix of 12 rows.
TEST(Coverage, IsThatOfSingleElements) {
  std::mt19937 random(5);
  const auto below = [&](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(most));
  };
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    const int64_t width = 1 + below(9), total = 12 * width;
    Coverage coverage(width);
    std::vector<bool> came(static_cast<size_t>(total));
    int64_t number = 0;
    for (int i = 0; i < 12; ++i) {
      const int64_t distance = below(3) == 0 ? 1 + below(2 * width) : width, begin = below(total),
                    count = 1 + below(std::min(distance, total - begin)),
                    times = 1 + below((total - begin - count) / distance + 1);
      std::vector<size_t> elements;
      for (int64_t t = 0; t < times; ++t)
        for (int64_t j = 0; j < count; ++j) elements.push_back(static_cast<size_t>(begin + t * distance + j));
      bool again = false;
      for (const size_t each : elements) again = again || came[each];
      if (again) {
        ++refused;
        EXPECT_THROW(coverage.add("w", begin, count, distance, times), Error);
        break;  // the sync ends there
      }
      coverage.add("w", begin, count, distance, times);
      for (const size_t each : elements) came[each] = true;
      EXPECT_EQ(coverage.count(), number += static_cast<int64_t>(elements.size()));
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(Coverage, NothingCoversNothing) {
  Coverage coverage(4);
  for (int i = 0; i < 2; ++i) coverage.add("w", 3, 0);
  EXPECT_EQ(coverage.count(), 0);
}

TEST(Coverage, ColumnsOfManyRowsAreQuick) {
  constexpr int64_t kRows = int64_t{1} << 40;
  Coverage coverage(256);
  for (int64_t rank = 0; rank < 4; ++rank) coverage.add("w", rank * 64, 64, 256, kRows);
  EXPECT_EQ(coverage.count(), 256 * kRows);
  EXPECT_THROW(coverage.add("w", 255 + 256 * (kRows - 1), 1), Error);
}

}  // namespace
}  // namespace temper::exchange
