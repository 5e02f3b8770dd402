#include "foreign/compressed_tensors/scale_grid.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace temper::foreign {
namespace {

using Sizes = std::vector<int64_t>;

TEST(ScaleGrids, AreWhatTheShapeMeans) {
  ScaleGrids grids;
  for (const Sizes& whole : {Sizes{}, Sizes{1}, Sizes{1, 1}})
    EXPECT_EQ(grids.of(whole, 6, 8), (Grid{1, 1, 6, 8}));
  EXPECT_EQ(grids.of({6}, 6, 8), (Grid{6, 1, 1, 8}));
  EXPECT_EQ(grids.of({6, 2}, 6, 8), (Grid{6, 2, 1, 4}));
  for (const Sizes& none : {Sizes{5}, Sizes{6, 3}, Sizes{6, 0}, Sizes{2, 2}, Sizes{6, 1, 1}})
    EXPECT_EQ(grids.of(none, 6, 8), std::nullopt);
  EXPECT_EQ(grids.of_tiles({1, 1}, 6, 8), std::nullopt);
}

TEST(ScaleGrids, HaveTilesThatMayNotFillTheLastGroups) {
  ScaleGrids grids;
  grids.add_tile(Json(Json::Array{Json(4), Json(3)}), "group_0");
  EXPECT_EQ(grids.of({2, 3}, 6, 8), (Grid{2, 3, 4, 3}));
  EXPECT_EQ(grids.of({1, 1}, 4, 3), (Grid{1, 1, 4, 3}));
  EXPECT_EQ(grids.of_tiles({1, 1}, 4, 3), (Grid{1, 1, 4, 3}));
  EXPECT_EQ(grids.shapes(6, 8), (std::vector<Shape>{{1}, {6, 1}, {2, 3}}));
  EXPECT_EQ(error_of([&] { grids.add_tile(Json(Json::Array{Json(4)}), "group_0"); }),
            "[group_0] block_structure is [4], expected [rows, columns] of a tile");
}

}  // namespace
}  // namespace temper::foreign
