#include "data/rows/token_columns.h"

#include <gtest/gtest.h>

#include <cmath>

namespace temper::data {
namespace {

// Each number is another one, so that no column passes for another.
TokenColumns columns_from(float first, int64_t tokens) {
  TokenColumns columns;
  for (const auto& [column, unknown] : TokenColumns::kAll)
    for (int64_t token = 0; token < tokens; ++token) (columns.*column).push_back(first++);
  return columns;
}

TEST(TokenColumns, ATokenBringsAllThatIsKnownOfIt) {
  const TokenColumns from = columns_from(10, 3);
  TokenColumns columns;
  columns.append(from, 2);
  columns.append(from, 0);
  float first = 10;
  for (const auto& [column, unknown] : TokenColumns::kAll) {
    EXPECT_EQ(columns.*column, (TokenColumns::Column{first + 2, first}));
    first += 3;
  }
}

// The old log-probability is then the token's own.
TEST(TokenColumns, UnknownNumbersAreZeroOrNaN) {
  TokenColumns columns;
  columns.append({.values = {1, 2}}, 1);
  EXPECT_TRUE(columns.fits(1));
  for (const auto& [column, unknown] : TokenColumns::kAll) {
    ASSERT_EQ((columns.*column).size(), 1u);
    EXPECT_EQ(std::isnan((columns.*column)[0]), column == &TokenColumns::old_log_probs);
  }
  EXPECT_EQ(columns.kept[0], 0);
  EXPECT_EQ(columns.values[0], 2);
}

TEST(TokenColumns, MoreTokensFollowInTheColumnsThatAreKnown) {
  TokenColumns columns{.rollout_log_probs = {-1}, .old_log_probs = {-2}};
  columns.extend(2);
  EXPECT_EQ(columns.rollout_log_probs, (TokenColumns::Column{-1, 0}));
  EXPECT_TRUE(std::isnan(columns.old_log_probs[1]));
  columns.append({.rollout_log_probs = {-3}, .old_log_probs = {-4}});
  EXPECT_EQ(columns.rollout_log_probs, (TokenColumns::Column{-1, 0, -3}));
  EXPECT_EQ(columns.old_log_probs[2], -4);
  EXPECT_TRUE(columns.kept.empty());
  EXPECT_TRUE(columns.fits(3));
  EXPECT_FALSE(columns.fits(2));
}

}  // namespace
}  // namespace temper::data
