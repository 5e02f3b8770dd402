#pragma once
#include "backends/onednn/tile.h"

namespace temper::backends {

// c [m, n] = a [m, k] b [k, n] + bias, or c += a b when accumulating (float32 c only), on all threads.
struct Product {
  Matrix a, b;
  int64_t m = 0, n = 0, k = 0;
  Tensor c;     // [m, n] compact, float32 or bfloat16
  Tensor bias;  // [n], or undefined
  bool accumulate = false;
};

// The tiles are cut by the shape alone: any number of threads gives the same bits.
void multiply(const Product& product, Bf16Path path = bf16_path());

}  // namespace temper::backends
