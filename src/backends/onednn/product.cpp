#include "backends/onednn/product.h"

#include <algorithm>

#include "backends/onednn/tiles/blocks.h"
#include "backends/onednn/tiles/packed_tile.h"
#include "backends/onednn/tiles/task_memory.h"
#include "base/threads/threads.h"

namespace temper::backends {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Large tiles come near the peak; smaller products give some of it up for enough tiles to share.
struct Cut {
  int64_t m, n;
};
Cut cut_for(int64_t m, int64_t n, int64_t enough, std::initializer_list<Cut> cuts) {
  for (const Cut cut : cuts)
    if (ceil_div(m, cut.m) * ceil_div(n, cut.n) >= enough) return cut;
  return *std::prev(cuts.end());
}

// Adds the part of a term that lies in the tile at (row, column).
void add_term(const Product::Term& term, const Tile& tile, int64_t row, int64_t column, Bf16Path path) {
  const int64_t top = std::max(row, term.row), left = std::max(column, term.column);
  const int64_t height = std::min(row + tile.m, term.row + term.rows) - top,
                width = std::min(column + tile.n, term.column + term.columns) - left;
  if (height <= 0 || width <= 0) return;
  multiply(Tile{.a = term.a.block(top - term.row, 0),
                .b = term.b.block(0, left - term.column),
                .m = height,
                .n = width,
                .k = term.k,
                .c = tile.c + (top - row) * tile.stride + (left - column),
                .stride = tile.stride,
                .accumulate = true},
           path);
}

// Memory of codes that are widened, in units of float32: lines of a power of two would share cache sets.
int64_t widened_line(int64_t k) {
  constexpr int64_t kLine = 32;
  return (k + kLine - 1) / kLine * kLine + kLine / 2;
}
int64_t floats_for_codes(const Product& product, int64_t columns) {
  if (!product.scales.defined()) return 0;
  return ceil_div(columns * widened_line(product.k) * size_of(product.a.dtype), size_of(DType::kF32));
}

// The columns of a tile, as they are multiplied.
Matrix widened(const Product& product, const Tile& tile, int64_t column, float* to) {
  const Block wide{to, product.a.dtype, widened_line(product.k)};
  copy_codes({const_cast<void*>(tile.b.data), tile.b.dtype, tile.b.stride},
             product.scales.data<float>() + column, wide, tile.n, tile.k);
  return {wide.data, wide.dtype, wide.stride, true};
}

// Columns [first, end) of a product; `packed` holds those of b, or is null: a tile packs its own.
struct Strip {
  int64_t first, end;
  const PackedColumns* packed = nullptr;
};

void run_tile(const Product& product, const Strip& strip, const Cut& cut, int64_t row, int64_t column,
              Bf16Path path) {
  Tile tile{.a = product.a.block(row, 0),
            .b = product.b.block(0, column),
            .m = std::min(cut.m, product.m() - row),
            .n = std::min(cut.n, strip.end - column),
            .k = product.k};
  const TaskMemory memory(floats_for_codes(product, tile.n));
  if (product.scales.defined()) tile.b = widened(product, tile, column, memory.data());
  tile.accumulate = product.accumulate || product.bias.defined();
  const WideBlock c(block_of(product.c, row, column), tile.m, tile.n, product.accumulate);
  tile.c = c.data();
  tile.stride = c.stride();
  if (product.bias.defined())  // every row starts from the bias
    copy_block({static_cast<std::byte*>(product.bias.raw()) + column * size_of(product.bias.dtype()),
                product.bias.dtype(), 0},
               {tile.c, DType::kF32, tile.stride}, tile.m, tile.n);
  if (strip.packed != nullptr)
    strip.packed->multiply(tile, column - strip.first);
  else
    multiply(tile, path);
  for (const Product::Term& term : product.terms) add_term(term, tile, row, column, path);
  c.store();
}

// Neighbouring tiles share their columns, which are the weights.
void run_strip(const Product& product, const Strip& strip, const Cut& cut, Bf16Path path) {
  const int64_t down = ceil_div(product.m(), cut.m), across = ceil_div(strip.end - strip.first, cut.n);
  parallel_for(down * across, [&](int64_t i) {
    run_tile(product, strip, cut, i % down * cut.m, strip.first + i / down * cut.n, path);
  });
}

constexpr int64_t kStrip = 1024;

int64_t packed_columns(int64_t k, DType products) {
  constexpr int64_t kPackedBytes = 64 << 20;
  return std::max(kStrip, kPackedBytes / (k * size_of(products)) / kStrip * kStrip);
}

Cut packed_cut(int64_t rows, int64_t columns) {
  return cut_for(rows, columns, 16,
                 {{192, kStrip}, {96, kStrip}, {96, 512}, {96, 256}, {48, 256}, {48, 128}});
}

// The columns of b are packed once, some at a time, for all tiles that stand above each other. So tiles can
// be small enough that no thread waits long for the last one.
void multiply_packed(const Product& product, DType products, Bf16Path path) {
  const int64_t strip = packed_columns(product.k, products);
  for (int64_t first = 0; first < product.n(); first += strip) {
    const int64_t columns = std::min(strip, product.n() - first);
    PackedColumns packed(products, product.k, columns);
    const Matrix b = product.b.block(0, first);
    parallel_for(packed.pieces(), [&](int64_t piece) { packed.pack(b, piece); });
    run_strip(product, {first, first + columns, &packed}, packed_cut(product.m(), columns), path);
  }
}

bool packs(const Product& product, DType products) {
  constexpr int64_t kManyRows = 128;  // few do not pay for packing ahead
  return product.m() >= kManyRows && product.k > 0 && has_packed_tile(products);
}

Cut plain_cut(const Product& product) {
  if (product.scales.defined()) return {128, 64};  // widened columns stay in a near cache
  return cut_for(product.m(), product.n(), 8,
                 {{512, 512}, {256, 512}, {256, 256}, {128, 256}, {128, 128}, {128, 64}});
}

// b as tiles have it.
Matrix multiplied(const Product& product) {
  Matrix b = product.b;
  if (product.scales.defined()) b.dtype = product.a.dtype;
  return b;
}

// What multiply() takes for such a tile or those at the edges, of fewer rows or columns: they may take more.
int64_t most_of(const Tile& tile, int64_t last_rows, int64_t last_columns, Bf16Path path) {
  int64_t most = 0;
  for (const int64_t m : {tile.m, last_rows})
    for (const int64_t n : {tile.n, last_columns}) {
      Tile other = tile;
      other.m = m;
      other.n = n;
      most = std::max(most, workspace_of(other, path));
    }
  return most;
}

// What multiply() takes: the columns packed, and what the tiles that are computed at once take.
int64_t workspace_of(const Product& product, Bf16Path path) {
  const DType products = products_of(product.a, multiplied(product), path);
  const bool packed = packs(product, products);
  const int64_t columns = packed ? std::min(packed_columns(product.k, products), product.n()) : product.n();
  const Cut cut = packed ? packed_cut(product.m(), columns) : plain_cut(product);
  const int64_t rows = std::min(cut.m, product.m()), width = std::min(cut.n, columns),
                tiles = ceil_div(product.m(), cut.m) * ceil_div(columns, cut.n);
  const int64_t wide = product.c.dtype() == DType::kF32 ? 0 : rows * width * size_of(DType::kF32);
  Tile tile{.a = product.a, .b = multiplied(product), .m = rows, .n = width, .k = product.k};
  tile.stride = wide > 0 ? width : product.c.stride(0);
  tile.accumulate = product.accumulate || product.bias.defined();
  int64_t each = packed ? PackedColumns::workspace_of_tile(products, product.k, rows)
                        : most_of(tile, product.m() % cut.m, columns % cut.n, path);
  each += TaskMemory::pooled_bytes(floats_for_codes(product, width));
  tile.accumulate = true;
  for (const Product::Term& term : product.terms) {
    tile.a = term.a;
    tile.b = term.b;
    tile.k = term.k;
    each = std::max(each, most_of(tile, 0, 0, path));
  }
  return (packed ? PackedColumns::workspace(products, product.k, columns) : 0) +
         std::min<int64_t>(tiles, num_threads()) * (wide + each);
}

}  // namespace

void multiply(const Product& product, Bf16Path path) {
  if (product.m() == 0 || product.n() == 0) return;
  if (only_counts(product.c.device())) {
    Tensor::empty({workspace_of(product, path)}, DType::kU8, MemoryTag::kWorkspace, product.c.device());
    return;
  }
  const DType products = products_of(product.a, multiplied(product), path);
  if (packs(product, products)) return multiply_packed(product, products, path);
  const Cut cut = plain_cut(product);
  run_strip(product, {0, product.n()}, cut, path);
}

}  // namespace temper::backends
