#pragma once
#include <vector>

#include "backends/onednn/tiles/tile.h"

namespace temper::backends {

// c [m, n] = a [m, k] b [k, n] + bias, or c += a b when accumulating, on all threads. Sums are float32; a
// bfloat16 c is rounded once.
struct Product {
  // Another product, of few k, that is added to a rectangle of c while c is at hand.
  struct Term {
    Matrix a, b;                // [rows, k], [k, columns]
    int64_t row = 0, rows = 0;  // of c
    int64_t column = 0, columns = 0;
    int64_t k = 0;
  };
  Matrix a, b;
  int64_t k = 0;
  Tensor c;          // [m, n] with compact rows, float32 or bfloat16
  Tensor bias = {};  // [n], or undefined
  bool accumulate = false;
  std::vector<Term> terms = {};
  // Where b is codes of 8 bits (primitives/quantized.h) that lie one column behind the other: the factor of
  // each. They are widened to a's dtype, some columns at a time, for few rows: m is below 128.
  Tensor scales = {};  // [n] float32, or undefined: b is itself

  int64_t m() const { return c.dim(0); }
  int64_t n() const { return c.dim(1); }
};

// The tiles are cut by the shape alone: any number of threads gives the same bits. Of a c on a device that
// only counts it takes the workspace and computes nothing: so kernels of products are their own outlines.
void multiply(const Product& product, Bf16Path path = bf16_path());

}  // namespace temper::backends
