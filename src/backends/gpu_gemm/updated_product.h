#pragma once
#include <vector>

#include "tensor/tensor.h"

namespace temper::backends {

// d = a op(b) + bias, and for each update d += low op(its b) in the update's rows and columns. All of one
// dtype; sums are float32.
struct UpdatedProduct {
  struct Update {
    int64_t row, column;  // the first of d
    Tensor low;           // [rows, rank]
    Tensor b;             // [rank, columns], or [columns, rank] when transposed
    int64_t columns(bool transposed) const { return b.dim(transposed ? 0 : 1); }
  };
  Tensor a;                  // [m, k]
  Tensor b;                  // [k, n], or [n, k] when transposed
  Tensor d;                  // [m, n], fresh; with gate_up [m, 2 n]
  bool transpose_b = false;  // the updates' as well
  Tensor bias = {};          // [n], or undefined
  // No two reach the same element, none is empty; those that begin at one row have the same rows.
  std::vector<Update> updates;

  // Swiglu of the product or before it (ops/swiglu), with the bits that it has by itself. Forward, y is
  // swiglu(d). Backward, the product is the gradient of swiglu(gate_up) and d that of gate_up; y, where it is
  // defined, becomes swiglu(gate_up).
  Tensor gate_up = {};  // [m, 2 n]
  Tensor y = {};        // [m, n / 2]; [m, n] if gate_up is defined

  int64_t columns() const { return b.dim(transpose_b ? 0 : 1); }  // n
};

// By cuBLASLt: the updates first, with the base's product added to them, where they reach all of d.
void multiply_and_update(const UpdatedProduct& product);
// d += the updates alone; y, where it is defined, becomes swiglu of that.
void add_updates(const UpdatedProduct& product);

}  // namespace temper::backends
