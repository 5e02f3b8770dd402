#pragma once
#include "backends/onednn/tiles/tile.h"

namespace temper::backends {

struct TileKernels;

// Matrix multiplications of our own, by AVX-512 or AVX2 (tile_kernels.h). float32 ones take operands of
// either dtype, widened as they are packed; bfloat16 ones take two bfloat16 operands and multiply pairs of
// them (VDPBF16PS), sums are float32. k is added up in the same blocks whatever m and n are.

// Whether they run here, for float32 or bfloat16; not for what the processor multiplies faster by AMX.
bool has_packed_tile(DType products);

// On the calling thread.
void packed_tile(const Tile& tile, DType products);
int64_t packed_workspace(const Tile& tile, DType products);  // bytes that it takes

// c = a b without accumulating, for a few rows of float32 a and columns of float32 b that lie one behind the
// other in memory, of at most 128 elements: in an order of sums of its own where that is faster. On the
// calling thread.
void short_dots(const Tile& tile);

// From this number of rows on, float32 tiles of contiguous columns of less than 512 elements are faster than
// dots of rows (blocks.h). The largest int64_t if there are no tiles of our own.
int64_t rows_of_tiles();

// b, packed once for many tiles.
class PackedColumns {
 public:
  PackedColumns(DType products, int64_t k, int64_t columns);
  // Pieces are packed in any order, on any thread.
  int64_t pieces() const { return blocks_ * panels_; }
  void pack(const Matrix& b, int64_t piece);
  // The tile, whose b are the columns from `first` on, a multiple of kAlign. On the calling thread.
  static constexpr int64_t kAlign = 64;
  void multiply(const Tile& tile, int64_t first) const;

  // Bytes of such columns, and those that multiply() takes for a tile of `rows`.
  static int64_t workspace(DType products, int64_t k, int64_t columns);
  static int64_t workspace_of_tile(DType products, int64_t k, int64_t rows);

 private:
  const TileKernels& kernels_;
  int64_t k_ = 0, columns_ = 0, panels_ = 0, blocks_ = 0;
  Tensor packed_;
};

}  // namespace temper::backends
