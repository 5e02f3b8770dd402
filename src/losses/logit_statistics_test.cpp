#include "losses/logit_statistics.h"

#include <gtest/gtest.h>

#include "collectives/launch.h"

namespace temper::losses {
namespace {

// All of them below 0, so that no 0 passes for the largest. Right values from Python's
// statistics.mean and statistics.stdev.
const std::vector<float> kLogits{-1.5f, -2.25f, -0.5f, -7.0f, -3.125f, -0.75f, -9.5f, -4.0f, -1.0f, -2.0f};
constexpr double kMean = -3.1625, kDeviation = 2.946307717579185, kLeast = -9.5, kLargest = -0.5;

void expect_right(const LogitStatistics& found) {
  EXPECT_NEAR(found.mean(), kMean, 1e-6);
  EXPECT_NEAR(found.deviation(), kDeviation, 1e-6);
  EXPECT_EQ(found.least, kLeast);
  EXPECT_EQ(found.largest, kLargest);
  EXPECT_EQ(found.tokens, 2);
  EXPECT_EQ(found.vocabulary, 5);
}

Tensor columns(int64_t first, int64_t count) {
  return Tensor::from<float>(kLogits, {2, 5}).narrow(1, first, count).contiguous();
}

TEST(LogitStatistics, AreThoseOfPython) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) expect_right(statistics_of(columns(0, 5).to(dtype)));
}

TEST(LogitStatistics, OfTokensOneByOneAreThoseOfAll) {
  LogitStatistics all;
  all.add(statistics_of(columns(0, 5).narrow(0, 0, 1).contiguous()));
  all.add(statistics_of(columns(0, 5).narrow(0, 1, 1).contiguous()));
  all.add(LogitStatistics{});  // of a rank without rows
  expect_right(all);
}

TEST(LogitStatistics, OfADividedVocabularyAreThoseOfTheWhole) {
  collectives::launch("threads", {.ranks = 2}, [](collectives::Group& ranks) {
    const int64_t first = ranks.rank() == 0 ? 0 : 3;
    expect_right(statistics_of(columns(first, ranks.rank() == 0 ? 3 : 2), {&ranks, first}));
  });
}

TEST(LogitStatistics, OfNoTokensAreNone) {
  EXPECT_TRUE(statistics_of(Tensor::empty({0, 5}, DType::kF32)).empty());
}

}  // namespace
}  // namespace temper::losses
