#include "layers/context_spans.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"

namespace temper::layers {
namespace {

DecoderInput input_of(const std::vector<int32_t>& lengths, std::vector<std::vector<TokenRange>> ranges,
                      int place) {
  const int32_t tokens = std::accumulate(lengths.begin(), lengths.end(), 0);
  DecoderInput input = make_input(std::vector<int32_t>(static_cast<size_t>(tokens)), lengths);
  input.cut = TokenCut(std::move(ranges), place);
  return input;
}

std::vector<int32_t> values_of(const Tensor& tensor) {
  return {tensor.values<int32_t>().begin(), tensor.values<int32_t>().end()};
}

// Which document each of the tokens before a span belongs to and how far they are, by looking at every token.
struct Token {
  int rank;
  int64_t at;  // among the rank's
  int32_t document;
};
std::vector<Token> tokens_of(const DecoderInput& input) {
  std::vector<Token> all(static_cast<size_t>(input.ids.numel()));
  for (int rank = 0; rank < input.cut.ranks(); ++rank) {
    int64_t at = 0;
    for (const TokenRange& range : input.cut.of(rank))
      for (int64_t t = range.first; t < range.first + range.count; ++t, ++at)
        all[static_cast<size_t>(t)] = {rank, at, 0};
  }
  const auto starts = input.cu_seqlens.values<int32_t>();
  for (size_t d = 0; d + 1 < starts.size(); ++d)
    for (int32_t t = starts[d]; t < starts[d + 1]; ++t)
      all[static_cast<size_t>(t)].document = static_cast<int32_t>(d);
  return all;
}

TEST(ContextSpans, OneDocumentGoesThroughAllButTheEnds) {
  const DecoderInput input = input_of({12}, {{{0, 4}}, {{4, 4}}, {{8, 4}}}, 1);
  const ContextSpans spans = context_spans(input);
  ASSERT_EQ(spans.all.size(), 3u);
  EXPECT_FALSE(spans.all[0].enters);
  EXPECT_TRUE(spans.all[0].leaves);
  EXPECT_TRUE(spans.all[1].through());
  EXPECT_FALSE(spans.all[2].leaves);
  EXPECT_FALSE(spans.all[0].through());
  EXPECT_EQ(values_of(spans.starts), (std::vector<int32_t>{0, 4}));
  EXPECT_EQ(spans.own, (std::vector<size_t>{1}));
  const auto before = spans.before(2, 6);
  ASSERT_EQ(before.size(), 2u);
  EXPECT_EQ(before[0].span, 1u);
  EXPECT_EQ(before[0].count, 4);
  EXPECT_EQ(before[1].span, 0u);
  EXPECT_EQ(before[1].count, 2);
}

TEST(ContextSpans, DocumentsThatEndWithASpanPassNothingOn) {
  const ContextSpans spans = context_spans(input_of({4, 4}, {{{0, 4}}, {{4, 4}}}, 0));
  EXPECT_FALSE(spans.any_enters());
  EXPECT_TRUE(spans.before(1, 3).empty());
}

// A rank's two spans, of which one is in the middle, as pieces of a row that are chosen by cost.
TEST(ContextSpans, SpansOfOneRankNeedNotFollowEachOther) {
  const ContextSpans spans = context_spans(input_of({5, 7}, {{{0, 3}, {9, 3}}, {{3, 6}}}, 0));
  ASSERT_EQ(spans.all.size(), 3u);
  EXPECT_EQ(spans.most, 2);
  EXPECT_EQ(spans.own, (std::vector<size_t>{0, 2}));
  EXPECT_EQ(values_of(spans.starts), (std::vector<int32_t>{0, 3, 6}));
  EXPECT_EQ(spans.all[1].pieces, 2);
  EXPECT_FALSE(spans.all[1].through());  // another document leaves it than enters it
  EXPECT_EQ(spans.all[1].first_tokens, 2);
  EXPECT_EQ(spans.all[1].last_tokens, 4);
  EXPECT_EQ(spans.all[2].first_piece, 1);
  EXPECT_EQ(spans.row(2), 1);  // rank 0's second
  EXPECT_EQ(spans.row(1), 2);  // rank 1's first
}

// Against a walk over single tokens, of every cut of some rows in spans of any lengths.
TEST(ContextSpans, TokensBeforeASpanAreThoseOfItsDocument) {
  for (const std::vector<int32_t>& lengths : {std::vector<int32_t>{9}, {1, 2, 1, 5}, {4, 1, 4}, {3, 3, 3}})
    for (int32_t a = 1; a < 8; ++a)
      for (int32_t b = a + 1; b < 9; ++b) {
        const DecoderInput input = input_of(lengths, {{{0, a}, {b, 9 - b}}, {{a, b - a}}}, 0);
        const std::vector<Token> tokens = tokens_of(input);
        const ContextSpans spans = context_spans(input);
        int64_t first = 0;
        for (size_t s = 0; s < spans.all.size(); first += spans.all[s++].count) {
          std::vector<std::pair<int, int64_t>> expected, found;
          for (int64_t t = first - 1; t >= std::max<int64_t>(first - 3, 0); --t) {
            const Token& token = tokens[static_cast<size_t>(t)];
            if (token.document == tokens[static_cast<size_t>(first)].document)
              expected.emplace_back(token.rank, token.at);
          }
          for (const ContextSpans::Tail& tail : spans.before(s, 3)) {
            const ContextSpan& other = spans.all[tail.span];
            for (int64_t i = 1; i <= tail.count; ++i)
              found.emplace_back(other.rank, other.first + other.count - i);
          }
          EXPECT_EQ(found, expected) << a << ", " << b << ", span " << s;
          EXPECT_EQ(spans.all[s].enters, !expected.empty());
        }
      }
}

TEST(ContextSpans, DocumentsThatContinueOthersHaveNoOrder) {
  DecoderInput input = input_of({2, 2}, {{{0, 2}}, {{2, 2}}}, 0);
  input.continued = {-1, 0};
  EXPECT_THROW(context_spans(input), Error);
}

}  // namespace
}  // namespace temper::layers
