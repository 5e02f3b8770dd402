#include "weights/layout.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace temper {
namespace {

// Two heads of four rows for q, one for k; a head's rows stay together.
WeightTable table_of(int64_t heads, int64_t kv_heads) {
  WeightTable table;
  table.keep_together("heads*head_dim", 4);
  const int64_t q = 4 * heads, kv = 4 * kv_heads;
  table.add({"qkv", {q + kv, 3}, {"heads*head_dim", "hidden"}, {{"q", q}, {"k", kv}}});
  table.add({"output", {3, q}, {"hidden", "heads*head_dim"}, {{"o", 3}}});
  table.add({"norm", {3}, {"hidden"}, {{"n", 3}}});
  return table;
}

std::vector<std::vector<int64_t>> lists(const std::vector<Slice>& slices) {
  std::vector<std::vector<int64_t>> all;
  for (const Slice& slice : slices) all.push_back({slice.whole, slice.own, slice.count});
  return all;
}

using Lists = std::vector<std::vector<int64_t>>;

TEST(Layout, CutsWhatIsStackedPieceByPiece) {
  const WeightTable table = table_of(4, 2);
  const Layout layout(table, {.replicate = 2, .tensor = 2}, 3);  // the second of its replica
  EXPECT_EQ(layout[0].own(), Shape({12, 3}));
  EXPECT_EQ(lists(layout[0].held().rows), (Lists{{8, 0, 8}, {20, 8, 4}}));
  EXPECT_EQ(lists(layout[0].held(0).rows), (Lists{{0, 0, 8}, {16, 8, 4}}));
  EXPECT_EQ(lists(layout[0].own_rows(10, 12)), (Lists{{10, 2, 6}, {20, 8, 2}}));
  EXPECT_EQ(lists(layout[0].own_rows(0, 8)), Lists{});
  EXPECT_EQ(layout[1].own(), Shape({3, 8}));
  EXPECT_EQ(lists(layout[1].own_rows(1, 2)), (Lists{{1, 1, 2}}));
  EXPECT_EQ(lists({layout[1].held().columns}), (Lists{{8, 0, 8}}));
  EXPECT_TRUE(layout[2].is_whole());
}

TEST(Layout, OneRankHoldsEverything) {
  const WeightTable table = table_of(4, 1);
  for (const Layout& layout : {Layout(table), Layout(table, {.replicate = 4}, 2)})
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(layout[i].is_whole());
      EXPECT_EQ(layout[i].own(), table.specs()[i].shape);
    }
}

TEST(Layout, RefusesWhatCannotBeDivided) {
  EXPECT_EQ(
      error_of([] { Layout(table_of(4, 1), {.tensor = 2}); }),
      "[k] axis heads*head_dim has 4 in units of 4, which 2 ranks cannot divide equally; choose a number of "
      "ranks that divides 1");
  EXPECT_EQ(
      error_of([] { Layout(table_of(4, 2), {.tensor = 4}); }),
      "[k] axis heads*head_dim has 8 in units of 4, which 4 ranks cannot divide equally; choose a number of "
      "ranks that divides 2");
}

}  // namespace
}  // namespace temper
