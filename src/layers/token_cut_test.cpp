#include "layers/token_cut.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "base/text.h"

namespace temper::layers {
namespace {

std::vector<int32_t> numbers(int64_t count) {
  std::vector<int32_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<int32_t> values_of(const Tensor& tensor) {
  return {tensor.values<int32_t>().begin(), tensor.values<int32_t>().end()};
}

TEST(TokenCut, OfOneRankIsAll) {
  const TokenCut cut = TokenCut::of_parts(std::array<int64_t, 1>{7}, 1, 0);
  EXPECT_TRUE(cut.is_whole());
  const Tensor all = Tensor::from(numbers(7));
  EXPECT_EQ(cut.own_of(all).raw(), all.raw());
  EXPECT_TRUE(cut.part(2, 3).is_whole());
}

TEST(TokenCut, CutsEachPartByItself) {
  const std::array<int64_t, 2> parts{4, 6};
  const TokenCut first = TokenCut::of_parts(parts, 2, 0), second = TokenCut::of_parts(parts, 2, 1);
  const Tensor all = Tensor::from(numbers(10));
  EXPECT_EQ(values_of(first.own_of(all)), (std::vector<int32_t>{0, 1, 4, 5, 6}));
  EXPECT_EQ(values_of(second.own_of(all)), (std::vector<int32_t>{2, 3, 7, 8, 9}));
  EXPECT_FALSE(first.is_in_order());
  EXPECT_EQ(first.tokens(), 10);
  EXPECT_EQ(first.tokens_of(1), 5);
  EXPECT_TRUE(TokenCut::of_parts(std::array<int64_t, 1>{6}, 3, 0).is_in_order());
  EXPECT_THROW(TokenCut::of_parts(std::array<int64_t, 1>{7}, 2, 0), Error);
}

// Of one long document the first piece costs least and the last most.
TEST(TokenCut, GivesRanksPiecesThatCostAlike) {
  std::vector<int64_t> costs(16);
  std::iota(costs.begin(), costs.end(), 1);
  const std::array<int64_t, 1> all{16};
  const TokenCut one = TokenCut::balanced(all, costs, 4, 1, 0);
  const auto ranges = [&](int rank) {
    return std::vector<TokenRange>(one.of(rank).begin(), one.of(rank).end());
  };
  EXPECT_EQ(ranges(0), (std::vector<TokenRange>{{0, 2}, {14, 2}}));
  EXPECT_EQ(ranges(1), (std::vector<TokenRange>{{2, 2}, {12, 2}}));
  EXPECT_EQ(ranges(3), (std::vector<TokenRange>{{6, 4}}));  // neighbours
  // Of documents of 8, 2, 2, 2 and 2 tokens the expensive end of the first goes with a short one.
  costs = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 1, 2, 1, 2, 1, 2};
  const TokenCut packed = TokenCut::balanced(all, costs, 2, 1, 0);
  int64_t of_first = 0;
  for (const TokenRange& range : packed.of(0))
    for (int64_t t = range.first; t < range.first + range.count; ++t)
      of_first += costs[static_cast<size_t>(t)];
  EXPECT_EQ(of_first, 5 + 6 + 7 + 8 + 1 + 2 + 1 + 2);
  EXPECT_TRUE(packed.is_even());
}

// Two groups of two ranks: the pieces of a group are its members'.
TEST(TokenCut, MembersOfAGroupDivideItsPieces) {
  std::vector<int64_t> costs(16);
  std::iota(costs.begin(), costs.end(), 1);
  const TokenCut cut = TokenCut::balanced(std::array<int64_t, 1>{16}, costs, 4, 2, 3);
  using Ranges = std::vector<std::vector<TokenRange>>;
  const auto ranges = [](const TokenCut& of) {
    Ranges all;
    for (int rank = 0; rank < of.ranks(); ++rank) all.emplace_back(of.of(rank).begin(), of.of(rank).end());
    return all;
  };
  EXPECT_EQ(ranges(cut), (Ranges{{{0, 4}}, {{12, 4}}, {{4, 4}}, {{8, 4}}}));
  EXPECT_EQ(ranges(cut.of_groups(2)), (Ranges{{{0, 4}, {12, 4}}, {{4, 8}}}));
  EXPECT_EQ(cut.of_groups(2).place(), 1);
  EXPECT_EQ(ranges(cut.in_group(2)), (Ranges{{{0, 4}}, {{4, 4}}}));
  EXPECT_EQ(cut.in_group(2).place(), 1);
  EXPECT_TRUE(cut.of_groups(4).is_whole());
  EXPECT_TRUE(cut.in_group(1).is_whole());
  EXPECT_EQ(ranges(cut.of_groups(1)), ranges(cut));
  EXPECT_EQ(ranges(cut.in_group(4)), ranges(cut));
}

// Of several parts, for any number of members: a rank's tokens are those of its place in its group.
TEST(TokenCut, TokensOfARankAreThoseOfItsPlaceInItsGroup) {
  const std::array<int64_t, 3> parts{24, 12, 36};
  std::vector<int64_t> costs;
  for (int64_t i = 0; i < 72; ++i) costs.push_back(i * i % 31 + 1);
  const Tensor all = Tensor::from(numbers(72));
  for (const int members : {1, 2, 3, 6})
    for (int place = 0; place < 6; ++place) {
      SCOPED_TRACE(fmt::format("{} members, rank {}", members, place));
      const TokenCut cut = TokenCut::balanced(parts, costs, 6, members, place);
      EXPECT_TRUE(cut.is_even());
      const Tensor of_group = cut.of_groups(members).own_of(all);
      EXPECT_EQ(of_group.numel(), 12 * members);
      EXPECT_EQ(values_of(cut.in_group(members).own_of(of_group)), values_of(cut.own_of(all)));
      const Tensor back = Tensor::zeros({72}, DType::kI32);
      for (int rank = 0; rank < 6; ++rank) {
        const Tensor its = Tensor::empty({12}, DType::kI32);
        cut.take(rank, all, its);
        cut.put(rank, its, back);
      }
      EXPECT_EQ(values_of(back), values_of(all));  // every token is one rank's
    }
}

TEST(TokenCut, PutsEveryRanksTokensBack) {
  const TokenCut cut = TokenCut::of_parts(std::array<int64_t, 2>{4, 6}, 2, 0);
  const Tensor all = Tensor::from(numbers(20)).reshape({10, 2}), back = Tensor::zeros({10, 2}, DType::kI32);
  for (int rank = 0; rank < 2; ++rank) {
    const Tensor its = Tensor::empty({5, 2}, DType::kI32);
    cut.take(rank, all, its);
    cut.put(rank, its, back);
  }
  EXPECT_EQ(values_of(back), values_of(all));
}

TEST(TokenCut, PartsOfItCountFromTheirFirstToken) {
  const TokenCut cut = TokenCut::of_parts(std::array<int64_t, 1>{12}, 3, 1);
  const TokenCut part = cut.part(3, 4);  // tokens 3 to 6, of which 4 to 6 are rank 1's
  EXPECT_EQ(part.tokens_of(0), 1);
  EXPECT_EQ(std::vector<TokenRange>(part.own().begin(), part.own().end()), (std::vector<TokenRange>{{1, 3}}));
  EXPECT_EQ(part.tokens_of(2), 0);
}

TEST(TokenCut, FindsWhereARankHasTokens) {
  const TokenCut cut = TokenCut::of_parts(std::array<int64_t, 2>{4, 6}, 2, 1);
  const std::vector<int32_t> tokens{1, 3, 4, 9};
  const TokenCut::Chosen own = cut.chosen(tokens, 1), other = cut.chosen(tokens, 0);
  EXPECT_EQ(own.index, (std::vector<size_t>{1, 3}));
  EXPECT_EQ(own.position, (std::vector<int32_t>{1, 4}));
  EXPECT_EQ(other.index, (std::vector<size_t>{0, 2}));
  EXPECT_EQ(other.position, (std::vector<int32_t>{1, 2}));
}

}  // namespace
}  // namespace temper::layers
