#pragma once
#include "backends/onednn/tiles/tile.h"

// What packed_tile.cpp asks of a processor's vectors. Everything is counted in units of 32 bits along k: one
// float32, or two neighbouring bfloat16, the last of them padded with zero.
namespace temper::backends {

constexpr int64_t kTileRows = 6;  // of a, in registers

// Unit (row, k) lies at data[row * row_step + k * unit_step].
struct Rows {
  const float* data;
  int64_t row_step, unit_step;
};

// Unit k of panel p's columns lies at data[p * panel_step + k * unit_step], one column behind the other. What
// is behind the last column must not be read.
struct Columns {
  const float* data;
  int64_t unit_step, panel_step;
};

struct Corner {  // of c
  float* data;
  int64_t stride;
  bool accumulate;
  int last;  // lanes of the last vector that are columns
};

struct TileKernels {
  int64_t lanes;     // units in a vector
  int64_t vectors;   // in a panel of b, side by side
  int64_t elements;  // of k in a unit
  int64_t depth;     // units of k at once, so that a panel of b stays in a near cache
  // c [height, vectors] (+)= a b over `units`, by [height - 1][vectors - 1].
  using Run = void (*)(const Rows& a, const Columns& b, int64_t units, const Corner& c);
  const Run* corners;
  // One panel of up to panel() columns of b, [units][panel()], zeros behind the last column.
  void (*pack_panel)(const Matrix& b, int64_t k, int64_t columns, float* panel);
  // a [rows, k] where it lies if that has the form, else a copy in `scratch` of rows_scratch() units.
  Rows (*pack_rows)(const Matrix& a, int64_t rows, int64_t k, float* scratch);

  // The tile, of few rows and a transposed b, which is read where it lies. a is packed for all of
  // k, which is added up in the same blocks of `depth`: the bits are those that the corners give.
  void (*few_rows)(const Rows& a, const Tile& tile);
  // c = a b for float32 a and a transposed float32 b of short columns, both read where they lie. Sums have an
  // order of their own, which k alone decides. Null: there is none that is faster than few_rows.
  void (*short_dots)(const Rows& a, const Tile& tile) = nullptr;
  // From this number of rows on, a linear's tile of short columns is faster than a dot for each result.
  int64_t rows_of_tiles = 5;

  int64_t panel() const { return lanes * vectors; }
  int64_t units_in(int64_t size) const { return (size + elements - 1) / elements; }
};

// Null where the processor lacks them.
const TileKernels* avx2_kernels(DType products);
const TileKernels* avx512_kernels(DType products);

// Lines of a power of two would share cache sets.
constexpr int64_t kTileGap = 16;
// Of a's lines of k, when they are copied.
constexpr int64_t line_of(int64_t rows) { return (rows + 31) / 32 * 32 + kTileGap; }
// Of a matrix that stays in the first cache wherever its lines lie, in float32.
constexpr int64_t kLittleMatrix = 4096;

// pack_rows for units of one float32, which needs no instructions of its own.
Rows pack_float_rows(const Matrix& a, int64_t rows, int64_t k, float* scratch);

}  // namespace temper::backends
