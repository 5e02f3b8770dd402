#pragma once
#include <vector>

#include "autograd/grad_slot.h"

namespace temper::backends {

// What an adapter's slices want of dy, of one dtype: of each
//   dlow = scale · dy b    db (+)= dyᵀ low
// in dy's columns that it updates. Sums are float32.
struct NarrowGradients {
  struct Slice {
    int64_t column;  // the first of dy
    Tensor b;        // [columns, rank]
    Tensor low;      // [rows, rank], scaled
    Tensor dlow;     // [rows, rank], fresh
    GradTarget db;   // [columns, rank]
    float scale;
  };
  Tensor dy;  // [rows, columns]
  std::vector<Slice> slices;
};

// By cuBLASLt, which reads dy twice.
void narrow_gradients(const NarrowGradients& op);
// By a kernel of our own for compute capability 9.0 and bfloat16 (hopper/), which reads dy once; returns
// whether it did. What it is not for goes to cuBLASLt: fewer rows, where launches are what takes time, ranks
// and first columns that are no multiples of 8, ranks of more than 32, more than four slices, slices that
// share a gradient, and sums over parts of the rows and columns that would take more than a product's
// workspace. Infinite values of dy beside a slice make its dlow NaN.
bool narrow_gradients_on_hopper(const NarrowGradients& op, int64_t fewest_rows = 1024);

}  // namespace temper::backends
