#include "weights/layout.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace temper {
namespace {

// Two heads of four rows for q, one for k; a head's rows stay together.
WeightTable table_of(int64_t heads, int64_t kv_heads) {
  WeightTable table;
  const WeightAxis axis = WeightAxis::divided("heads*head_dim", 4);
  const int64_t q = 4 * heads, kv = 4 * kv_heads;
  table.add({"qkv", {q + kv, 3}, {axis, "hidden"}, {{"q", q}, {"k", kv}}});
  table.add({"output", {3, q}, {"hidden", axis}, {{"o", 3}}});
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

// With fewer heads of keys than ranks neighbours hold the same; what they share is the first one's to count.
TEST(Layout, NeighboursShareHeadsOfKeys) {
  WeightTable table;
  table.add({.name = "qkv",
             .shape = {24, 3},
             .axes = {WeightAxis::divided("heads*head_dim", 4), "hidden"},
             .sources = {{"qkv", 24}},
             .segments = {{16}, {8, true}}});
  table.add({.name = "norm", .shape = {3}, .axes = {"hidden"}, .sources = {{"n", 3}}});
  for (int rank = 0; rank < 4; ++rank) {
    const Layout layout(table, {.tensor = 4}, rank);
    EXPECT_EQ(layout[0].own(), Shape({8, 3}));
    EXPECT_EQ(lists(layout[0].held().rows), (Lists{{4 * rank, 0, 4}, {16 + rank / 2 * 4, 4, 4}}));
    const auto shared = layout[0].shared_by_tensor(), all = layout[1].shared_by_tensor();
    ASSERT_EQ(shared.size(), 1u);
    EXPECT_EQ(shared[0].first, 12);
    EXPECT_EQ(shared[0].count, 12);
    EXPECT_EQ(shared[0].ranks, 2);
    EXPECT_EQ(shared[0].is_first, rank % 2 == 0);
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].ranks, 4);
    EXPECT_EQ(all[0].is_first, rank == 0);
  }
}

// Every element of the whole is where it was, whoever held which part: experts and their widths on two axes,
// shared further by elements in a row.
TEST(Layout, PartsPutTogetherAreTheWhole) {
  WeightTable table;
  const auto add = [&](const char* name, Shape shape, std::vector<WeightAxis> axes,
                       std::vector<WeightSource> sources) {
    table.add({.name = name,
               .shape = shape,
               .axes = std::move(axes),
               .sources = std::move(sources),
               .experts = std::string_view(name).find("experts") == std::string_view::npos ? 0 : 2,
               .layer = 0});
  };
  add("layers.0.experts.gate_up", {16, 4}, {WeightAxis::of_experts("experts*expert_width", 1), "hidden"},
      {{"g0", 4}, {"u0", 4}, {"g1", 4}, {"u1", 4}});
  add("layers.0.experts.down", {8, 8},
      {WeightAxis::of_experts("experts*hidden"), WeightAxis::divided("expert_width")},
      {{"d0", 4}, {"d1", 4}});
  add("layers.0.gate_up", {16, 4}, {WeightAxis::divided("intermediate"), "hidden"}, {{"g", 8}, {"u", 8}});
  add("layers.0.norm", {4}, {"hidden"}, {{"n", 4}});
  for (const Mesh& mesh :
       {Mesh{.tensor = 2, .expert = 2}, Mesh{.tensor = 2, .expert = 2, .sequence = true, .shard_level = 3},
        Mesh{.shard = 2, .tensor = 2, .expert = 2, .sequence = true, .shard_level = 3},
        Mesh{.replicate = 2, .shard = 2, .expert = 2, .sequence = true, .shard_level = 3}})
    for (size_t i = 0; i < table.specs().size(); ++i) {
      const Shape& shape = table.specs()[i].shape;
      const Tensor whole = Tensor::empty(shape, DType::kF32), again = Tensor::zeros(shape, DType::kF32);
      for (int64_t e = 0; e < whole.numel(); ++e) whole.data<float>()[e] = static_cast<float>(e + 1);
      const Layout first(table, mesh, 0);
      for (int part = 0; part < first[i].parts(); ++part) {
        const Layout layout(table, mesh, first[i].rank_of(part));
        const Tensor own = Tensor::zeros(layout[i].own(), DType::kF32);
        layout[i].take_own(whole, own);
        put_part(first[i], own, part, again);
      }
      for (int64_t e = 0; e < whole.numel(); ++e)
        EXPECT_EQ(again.data<float>()[e], whole.data<float>()[e])
            << table.specs()[i].name << ", " << to_string(mesh);
    }
}

// What layers have is summed and comes and goes with its layer, whatever it is called.
TEST(Layout, MatricesOfLayersAreSummedLayerByLayer) {
  WeightTable table;
  table.add({.name = "inside", .shape = {8, 4}, .axes = {"a", "b"}, .sources = {{"x", 8}}, .layer = 3});
  table.add({.name = "layers.3.outside", .shape = {8, 4}, .axes = {"a", "b"}, .sources = {{"y", 8}}});
  const Layout sums(table, {.shard = 2, .shard_level = 2}), gathers(table, {.shard = 2, .shard_level = 3});
  EXPECT_TRUE(sums.sums_by_layer(0));
  EXPECT_FALSE(sums.sums_by_layer(1));
  EXPECT_TRUE(gathers[0].is_flat());
  EXPECT_FALSE(gathers[1].is_flat());
}

TEST(Layout, OneRankHoldsEverything) {
  const WeightTable table = table_of(4, 1);
  for (const Layout& layout : {Layout(table), Layout(table, {.replicate = 4}, 2)})
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(layout[i].is_whole());
      EXPECT_EQ(layout[i].own(), table.specs()[i].shape);
    }
}

// The name of an axis decides nothing: the declaration does.
TEST(Layout, AxesAreDividedAsTheyAreDeclared) {
  WeightTable table;
  table.add({.name = "whole", .shape = {8, 8}, .axes = {"vocab", "heads"}, .sources = {{"w", 8}}});
  table.add({.name = "rows",
             .shape = {8, 8},
             .axes = {WeightAxis::divided("any", 2), "heads"},
             .sources = {{"r", 8}}});
  table.add({.name = "columns",
             .shape = {8, 8},
             .axes = {WeightAxis::of_experts("all"), WeightAxis::divided("width")},
             .sources = {{"c", 8}},
             .experts = 4});
  const Layout layout(table, {.tensor = 2, .expert = 2});
  EXPECT_TRUE(layout[0].is_whole());
  EXPECT_EQ(layout[1].own(), Shape({4, 8}));
  EXPECT_FALSE(layout[1].is_by_expert());
  EXPECT_EQ(layout[2].own(), Shape({4, 4}));
  EXPECT_TRUE(layout[2].is_by_expert());
}

TEST(Layout, RefusesWhatCannotBeDivided) {
  EXPECT_EQ(
      error_of([] { Layout(table_of(4, 1), {.tensor = 2}); }),
      "[parallel.tensor] 'k' has 4 in units of 4 on its axis heads*head_dim, which 2 ranks cannot divide "
      "equally; set tensor to 1");
  EXPECT_EQ(
      error_of([] { Layout(table_of(4, 2), {.tensor = 4}); }),
      "[parallel.tensor] 'k' has 8 in units of 4 on its axis heads*head_dim, which 4 ranks cannot divide "
      "equally; set tensor to 1 or 2");
}

}  // namespace
}  // namespace temper
