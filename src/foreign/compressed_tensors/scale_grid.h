#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "tensor/shape.h"

namespace temper::foreign {

// How a matrix is cut into groups that share a scale.
struct Grid {
  int64_t down = 1, across = 1;   // groups
  int64_t rows = 1, columns = 1;  // of one

  bool operator==(const Grid&) const = default;
};

// Which shapes of scales there may be of a matrix, and what they mean.
class ScaleGrids {
 public:
  // "block_structure" of a group of the configuration: [rows, columns] of a tile. Otherwise an Error.
  void add_tile(const Json& tile, const std::string& where);

  // One scale, one for each row, for each group of columns of a row, or for each tile that was added;
  // nothing: none of these.
  std::optional<Grid> of(const std::vector<int64_t>& scales, int64_t rows, int64_t columns) const;
  // The same where the scales are those of a tile. One tile may be all of a matrix.
  std::optional<Grid> of_tiles(const std::vector<int64_t>& scales, int64_t rows, int64_t columns) const;
  std::vector<Shape> shapes(int64_t rows, int64_t columns) const;  // for messages

 private:
  struct Tile {
    int64_t rows = 1, columns = 1;
  };
  std::vector<Tile> tiles_;
};

}  // namespace temper::foreign
