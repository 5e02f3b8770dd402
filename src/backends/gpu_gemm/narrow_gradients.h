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

}  // namespace temper::backends
