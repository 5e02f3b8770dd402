#include "backends/onednn/product.h"

#include <algorithm>

#include "backends/onednn/blocks.h"
#include "base/threads.h"

namespace temper::backends {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Large tiles come near the peak; smaller products give some of it up for enough tiles to share.
struct Cut {
  int64_t m, n;
};
Cut cut_for(int64_t m, int64_t n) {
  constexpr int64_t kEnoughTiles = 8;
  for (const Cut cut : {Cut{512, 512}, Cut{256, 512}, Cut{256, 256}, Cut{128, 256}})
    if (ceil_div(m, cut.m) * ceil_div(n, cut.n) >= kEnoughTiles) return cut;
  return {128, 128};
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

void run_tile(const Product& product, const Cut& cut, int64_t row, int64_t column, Bf16Path path) {
  Tile tile{.a = product.a.block(row, 0),
            .b = product.b.block(0, column),
            .m = std::min(cut.m, product.m - row),
            .n = std::min(cut.n, product.n - column),
            .k = product.k};
  tile.accumulate = product.accumulate || product.bias.defined();
  const WideBlock c(block_of(product.c, row, column), tile.m, tile.n, product.accumulate);
  tile.c = c.data();
  tile.stride = c.stride();
  if (product.bias.defined())  // every row starts from the bias
    copy_block({static_cast<std::byte*>(product.bias.raw()) + column * size_of(product.bias.dtype()),
                product.bias.dtype(), 0},
               {tile.c, DType::kF32, tile.stride}, tile.m, tile.n);
  multiply(tile, path);
  for (const Product::Term& term : product.terms) add_term(term, tile, row, column, path);
  c.store();
}

}  // namespace

void multiply(const Product& product, Bf16Path path) {
  if (product.m == 0 || product.n == 0) return;
  const Cut cut = cut_for(product.m, product.n);
  const int64_t down = ceil_div(product.m, cut.m), across = ceil_div(product.n, cut.n);
  // Neighbouring tiles share their columns, which are the weights.
  parallel_for(down * across,
               [&](int64_t i) { run_tile(product, cut, i % down * cut.m, i / down * cut.n, path); });
}

}  // namespace temper::backends
