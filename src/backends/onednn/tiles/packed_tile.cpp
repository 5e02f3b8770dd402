// The product as Goto and van de Geijn (2008) build it: b is packed into panels that stay in a near cache,
// six rows of a meet a panel's vectors of columns in registers. a is read where it lies whenever it can be.
#include "backends/onednn/tiles/packed_tile.h"

#include <algorithm>
#include <limits>

#include "backends/onednn/tiles/blocks.h"
#include "backends/onednn/tiles/task_memory.h"
#include "backends/onednn/tiles/tile_kernels.h"

namespace temper::backends {
namespace {

const TileKernels* find_kernels(DType products) {
  if (const TileKernels* best = avx512_kernels(products)) return best;
  return avx2_kernels(products);
}

const TileKernels* kernels_of(DType products) {
  static const TileKernels* const floats = find_kernels(DType::kF32);
  static const TileKernels* const pairs = find_kernels(DType::kBF16);
  return products == DType::kBF16 ? pairs : floats;
}

const TileKernels& kernels_for(DType products) {
  const TileKernels* kernels = kernels_of(products);
  invariant(kernels != nullptr, "[packed_tile] this processor has no kernels; ask has_packed_tile() first");
  return *kernels;
}

// Blocks of k, in elements.
struct Depths {
  Depths(const TileKernels& kernels, int64_t size) : step(kernels.depth * kernels.elements), k(size) {}
  int64_t count() const { return (k + step - 1) / step; }
  int64_t at(int64_t block) const { return std::min(step, k - block * step); }
  int64_t step, k;
};

// Units of scratch for pack_rows.
int64_t rows_scratch(const TileKernels& kernels, int64_t rows, int64_t k) {
  const int64_t units = kernels.units_in(k);
  return std::max(rows * (units + kTileGap), units * line_of(rows));
}

// And for all panels of b.
int64_t panels_scratch(const TileKernels& kernels, int64_t k, int64_t columns) {
  const int64_t panel = kernels.panel();
  return (columns + panel - 1) / panel * panel * kernels.units_in(k);
}

// b [k, columns] as panels, [panels][units][panel], in `scratch`; or where it lies, if it has that form and
// is little memory, or is read so few times, for `rows` of a, that a copy does not pay.
Columns pack_columns(const TileKernels& kernels, const Matrix& b, int64_t k, int64_t columns, int64_t rows,
                     float* scratch) {
  constexpr int64_t kFewUses = 24;
  const int64_t panel = kernels.panel(), panel_step = kernels.units_in(k) * panel;
  if (kernels.elements == 1 && b.dtype == DType::kF32 && !b.transposed &&
      (k * b.stride <= kLittleMatrix || rows <= kFewUses))
    return {static_cast<const float*>(b.data), b.stride, panel};
  for (int64_t c = 0; c < columns; c += panel)
    kernels.pack_panel(b.block(0, c), k, std::min(panel, columns - c), scratch + c / panel * panel_step);
  return {scratch, panel, panel_step};
}

// One block of k: c [m, n] (+)= a b. A panel of b stays in the cache while all rows pass by.
void run_block(const TileKernels& kernels, const Rows& a, const Columns& b, int64_t units, const Tile& tile,
               bool accumulate) {
  const int64_t panel = kernels.panel(), lanes = kernels.lanes;
  for (int64_t column = 0; column < tile.n; column += panel) {
    const int64_t width = std::min(panel, tile.n - column), vectors = (width + lanes - 1) / lanes;
    const int last = static_cast<int>(width - (vectors - 1) * lanes);
    for (int64_t row = 0; row < tile.m; row += kTileRows) {
      const int64_t height = std::min(kTileRows, tile.m - row);
      kernels.corners[(height - 1) * kernels.vectors + vectors - 1](
          {a.data + row * a.row_step, a.row_step, a.unit_step},
          {b.data + column / panel * b.panel_step, b.unit_step, b.panel_step}, units,
          {tile.c + row * tile.stride + column, tile.stride, accumulate, last});
    }
  }
}

// a for few_rows: never in lines that share cache sets, which b's columns would empty all the time.
Rows apart(const TileKernels& kernels, const Tile& tile, float* scratch) {
  constexpr int64_t kSharing = 1024;  // units: a page
  const int64_t units = kernels.units_in(tile.k), step = units + kTileGap;
  const Rows rows = kernels.pack_rows(tile.a, tile.m, tile.k, scratch);
  if (rows.data == scratch || rows.unit_step != 1 || rows.row_step % kSharing != 0 || tile.m == 1)
    return rows;
  for (int64_t r = 0; r < tile.m; ++r) std::copy_n(rows.data + r * rows.row_step, units, scratch + r * step);
  return {scratch, step, 1};
}

void run_few_rows(const TileKernels& kernels, const Tile& tile) {
  const TaskMemory scratch(rows_scratch(kernels, tile.m, tile.k));
  kernels.few_rows(apart(kernels, tile, scratch.data()), tile);
}

// Where turning columns for some rows after others costs less than packing them: short ones are packed in the
// first cache.
bool has_few_rows(const Tile& tile) {
  constexpr int64_t kFew = 8, kFewOfLong = 24, kLong = 512;
  return tile.b.transposed && tile.m <= (tile.k < kLong ? kFew : kFewOfLong);
}

}  // namespace

Rows pack_float_rows(const Matrix& a, int64_t rows, int64_t k, float* scratch) {
  const Block source{const_cast<void*>(a.data), a.dtype, a.stride};
  if (a.transposed) {
    if (a.dtype == DType::kF32 && k * a.stride <= kLittleMatrix)
      return {static_cast<const float*>(a.data), 1, a.stride};
    copy_block(source, {scratch, DType::kF32, line_of(rows)}, k, rows);
    return {scratch, 1, line_of(rows)};
  }
  if (a.dtype == DType::kF32) return {static_cast<const float*>(a.data), a.stride, 1};
  copy_block(source, {scratch, DType::kF32, k + kTileGap}, rows, k);
  return {scratch, k + kTileGap, 1};
}

bool has_packed_tile(DType products) { return kernels_of(products) != nullptr; }

int64_t packed_workspace(const Tile& tile, DType products) {
  const TileKernels& kernels = kernels_for(products);
  if (has_few_rows(tile)) return TaskMemory::pooled_bytes(rows_scratch(kernels, tile.m, tile.k));
  const int64_t most = Depths(kernels, tile.k).at(0);
  return TaskMemory::pooled_bytes(panels_scratch(kernels, most, tile.n)) +
         TaskMemory::pooled_bytes(rows_scratch(kernels, tile.m, most));
}

void packed_tile(const Tile& tile, DType products) {
  const TileKernels& kernels = kernels_for(products);
  if (has_few_rows(tile)) return run_few_rows(kernels, tile);
  const Depths depths(kernels, tile.k);
  const int64_t most = depths.at(0);
  const TaskMemory panels(panels_scratch(kernels, most, tile.n));
  const TaskMemory rows(rows_scratch(kernels, tile.m, most));
  for (int64_t block = 0; block < depths.count(); ++block) {
    const int64_t k = block * depths.step, size = depths.at(block);
    const Columns b = pack_columns(kernels, tile.b.block(k, 0), size, tile.n, tile.m, panels.data());
    const Rows a = kernels.pack_rows(tile.a.block(0, k), tile.m, size, rows.data());
    run_block(kernels, a, b, kernels.units_in(size), tile, tile.accumulate || block > 0);
  }
}

void short_dots(const Tile& tile) {
  const TileKernels& kernels = kernels_for(DType::kF32);
  if (kernels.short_dots == nullptr) return packed_tile(tile, DType::kF32);
  kernels.short_dots({static_cast<const float*>(tile.a.data), tile.a.stride, 1}, tile);
}

int64_t rows_of_tiles() {
  const TileKernels* const kernels = kernels_of(DType::kF32);
  return kernels == nullptr ? std::numeric_limits<int64_t>::max() : kernels->rows_of_tiles;
}

PackedColumns::PackedColumns(DType products, int64_t k, int64_t columns)
    : kernels_(kernels_for(products)),
      k_(k),
      columns_(columns),
      panels_((columns + kernels_.panel() - 1) / kernels_.panel()),
      blocks_(Depths(kernels_, k).count()),
      packed_(Tensor::empty({panels_scratch(kernels_, k, columns)}, DType::kF32, MemoryTag::kWorkspace)) {}

int64_t PackedColumns::workspace(DType products, int64_t k, int64_t columns) {
  return panels_scratch(kernels_for(products), k, columns) * size_of(DType::kF32);
}

int64_t PackedColumns::workspace_of_tile(DType products, int64_t k, int64_t rows) {
  const TileKernels& kernels = kernels_for(products);
  return TaskMemory::pooled_bytes(rows_scratch(kernels, rows, Depths(kernels, k).at(0)));
}

void PackedColumns::pack(const Matrix& b, int64_t piece) {
  const Depths depths(kernels_, k_);
  const int64_t panel = kernels_.panel(), block = piece / panels_, column = piece % panels_ * panel;
  const int64_t size = depths.at(block);
  float* to =
      packed_.data<float>() + block * kernels_.depth * panels_ * panel + column * kernels_.units_in(size);
  kernels_.pack_panel(b.block(block * depths.step, column), size, std::min(panel, columns_ - column), to);
}

void PackedColumns::multiply(const Tile& tile, int64_t first) const {
  const Depths depths(kernels_, k_);
  const int64_t panel = kernels_.panel();
  const TaskMemory rows(rows_scratch(kernels_, tile.m, depths.at(0)));
  for (int64_t block = 0; block < depths.count(); ++block) {
    const int64_t size = depths.at(block), units = kernels_.units_in(size);
    const Rows a = kernels_.pack_rows(tile.a.block(0, block * depths.step), tile.m, size, rows.data());
    const float* panels = packed_.data<float>() + block * kernels_.depth * panels_ * panel + first * units;
    run_block(kernels_, a, {panels, panel, panel * units}, units, tile, tile.accumulate || block > 0);
  }
}

}  // namespace temper::backends
