#include "training/objectives/gather_rows.h"

#include <gtest/gtest.h>

#include "collectives/launch.h"

namespace temper::training {
namespace {

using data::PackedRow;

// Each number is another one, so that no field passes for another.
data::TokenColumns columns_from(float first) {
  data::TokenColumns columns;
  for (const auto& [column, unknown] : data::TokenColumns::kAll) {
    columns.*column = {first + 0.1f, first + 0.2f};
    first += 0.3f;
  }
  return columns;
}

PackedRow row_of(int32_t first) {
  const auto f = static_cast<float>(first);
  return {.ids = {first, first + 1, first + 2},
          .targets = {first + 3, data::kIgnore, first + 4},
          .document_lengths = {1, 2},
          .sources = {first + 5, first + 6},
          .answers = {{}, {{first + 7, true}, {first + 8, false}}},
          .sampled = columns_from(f),
          .experts = {first + 9, -1, first + 10}};
}

// A field that rows get later does not compile here until it is compared, too.
void expect_same(const PackedRow& found, const PackedRow& expected) {
  const auto& [ids, targets, document_lengths, sources, answers, sampled, experts] = found;
  EXPECT_EQ(ids, expected.ids);
  EXPECT_EQ(targets, expected.targets);
  EXPECT_EQ(document_lengths, expected.document_lengths);
  EXPECT_EQ(sources, expected.sources);
  ASSERT_EQ(answers.size(), expected.answers.size());
  for (size_t d = 0; d < answers.size(); ++d) {
    ASSERT_EQ(answers[d].size(), expected.answers[d].size());
    for (size_t i = 0; i < answers[d].size(); ++i) {
      const auto& [length, good] = answers[d][i];
      EXPECT_EQ(length, expected.answers[d][i].length);
      EXPECT_EQ(good, expected.answers[d][i].good);
    }
  }
  for (const auto& [column, unknown] : data::TokenColumns::kAll)
    EXPECT_EQ(sampled.*column, expected.sampled.*column);
  EXPECT_EQ(experts, expected.experts);
}

// A rank may have none, or several.
TEST(GatheredRows, KeepEveryField) {
  std::vector<std::vector<PackedRow>> of_rank{{row_of(10), {}}, {}, {row_of(200)}};
  collectives::launch("threads", {.ranks = 3}, [&](collectives::Group& ranks) {
    const auto all = gather_rows(ranks, of_rank[static_cast<size_t>(ranks.rank())]);
    ASSERT_EQ(all.size(), 3u);
    for (size_t r = 0; r < all.size(); ++r) {
      ASSERT_EQ(all[r].size(), of_rank[r].size());
      for (size_t i = 0; i < all[r].size(); ++i) expect_same(all[r][i], of_rank[r][i]);
    }
  });
}

// As rank 0 read them, and each rank its part of their tokens.
TEST(SharedRows, KeepEveryField) {
  collectives::launch("threads", {.ranks = 2}, [&](collectives::Group& ranks) {
    const std::vector<PackedRow> mine = shared_rows(ranks, ranks, "rows", [] {
      return std::vector{row_of(10), row_of(200)};
    });
    ASSERT_EQ(mine.size(), 1u);
    expect_same(mine[0], row_of(ranks.rank() == 0 ? 10 : 200));
  });
}

}  // namespace
}  // namespace temper::training
