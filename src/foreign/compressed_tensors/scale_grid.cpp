#include "foreign/compressed_tensors/scale_grid.h"

#include "base/error.h"

namespace temper::foreign {
namespace {

int64_t parts(int64_t size, int64_t of_one) { return (size + of_one - 1) / of_one; }

}  // namespace

void ScaleGrids::add_tile(const Json& tile, const std::string& where) {
  if (!tile.is_array() || tile.as_array().size() != 2 || !tile.as_array()[0].is_int() ||
      !tile.as_array()[1].is_int() || tile.as_array()[0].as_int() < 1 || tile.as_array()[1].as_int() < 1)
    fail("[{}] block_structure is {}, expected [rows, columns] of a tile", where, tile.dump());
  tiles_.push_back({tile.as_array()[0].as_int(), tile.as_array()[1].as_int()});
}

std::optional<Grid> ScaleGrids::of(const std::vector<int64_t>& scales, int64_t rows, int64_t columns) const {
  using Sizes = std::vector<int64_t>;
  if (scales.empty() || scales == Sizes{1} || scales == Sizes{1, 1}) return Grid{1, 1, rows, columns};
  if (scales == Sizes{rows}) return Grid{rows, 1, 1, columns};
  if (scales.size() != 2 || scales[1] < 1) return std::nullopt;
  if (const auto tiles = of_tiles(scales, rows, columns)) return tiles;
  if (scales[0] != rows || columns % scales[1] != 0) return std::nullopt;
  return Grid{rows, scales[1], 1, columns / scales[1]};
}

std::optional<Grid> ScaleGrids::of_tiles(const std::vector<int64_t>& scales, int64_t rows,
                                         int64_t columns) const {
  for (const Tile& tile : tiles_)
    if (scales == std::vector<int64_t>{parts(rows, tile.rows), parts(columns, tile.columns)})
      return Grid{scales[0], scales[1], tile.rows, tile.columns};
  return std::nullopt;
}

std::vector<Shape> ScaleGrids::shapes(int64_t rows, int64_t columns) const {
  std::vector<Shape> all{{1}, {rows, 1}};
  for (const Tile& tile : tiles_) all.push_back({parts(rows, tile.rows), parts(columns, tile.columns)});
  return all;
}

}  // namespace temper::foreign
