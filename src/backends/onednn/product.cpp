#include "backends/onednn/product.h"

#include <algorithm>

#include "backends/onednn/blocks.h"
#include "backends/onednn/packed_tile.h"
#include "base/threads.h"

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

// Columns [first, end) of a product; `packed` holds those of b, or is null: a tile packs its own.
struct Strip {
  int64_t first, end;
  const PackedColumns* packed = nullptr;
};

void run_tile(const Product& product, const Strip& strip, const Cut& cut, int64_t row, int64_t column,
              Bf16Path path) {
  Tile tile{.a = product.a.block(row, 0),
            .b = product.b.block(0, column),
            .m = std::min(cut.m, product.m - row),
            .n = std::min(cut.n, strip.end - column),
            .k = product.k};
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
  const int64_t down = ceil_div(product.m, cut.m), across = ceil_div(strip.end - strip.first, cut.n);
  parallel_for(down * across, [&](int64_t i) {
    run_tile(product, strip, cut, i % down * cut.m, strip.first + i / down * cut.n, path);
  });
}

// The columns of b are packed once, some at a time, for all tiles that stand above each other. So tiles can
// be small enough that no thread waits long for the last one.
void multiply_packed(const Product& product, DType products, Bf16Path path) {
  constexpr int64_t kPackedBytes = 64 << 20, kStrip = 1024;
  const int64_t most = kPackedBytes / (product.k * size_of(products)) / kStrip * kStrip;
  const int64_t strip = std::max(kStrip, most);
  for (int64_t first = 0; first < product.n; first += strip) {
    const int64_t columns = std::min(strip, product.n - first);
    PackedColumns packed(products, product.k, columns);
    const Matrix b = product.b.block(0, first);
    parallel_for(packed.pieces(), [&](int64_t piece) { packed.pack(b, piece); });
    const Cut cut = cut_for(product.m, columns, 16,
                            {{192, kStrip}, {96, kStrip}, {96, 512}, {96, 256}, {48, 256}, {48, 128}});
    run_strip(product, {first, first + columns, &packed}, cut, path);
  }
}

}  // namespace

void multiply(const Product& product, Bf16Path path) {
  if (product.m == 0 || product.n == 0) return;
  const DType products = products_of(product.a, product.b, path);
  constexpr int64_t kManyRows = 128;  // few do not pay for packing ahead
  if (product.m >= kManyRows && product.k > 0 && has_packed_tile(products))
    return multiply_packed(product, products, path);
  const Cut cut =
      cut_for(product.m, product.n, 8, {{512, 512}, {256, 512}, {256, 256}, {128, 256}, {128, 128}});
  run_strip(product, {0, product.n}, cut, path);
}

}  // namespace temper::backends
