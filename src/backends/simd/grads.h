#pragma once
#include "tensor/tensor.h"

namespace temper::backends {

// Arguments that belong together. They are declared here because Highway compiles a kernel's file once per
// target, and its targets must share the types of their functions.
struct NormGrads {
  Tensor dy, dsum, dx;  // [rows, width]; dsum: undefined where no gradient reached the sum by other ways
};
struct GatedGrads {
  Tensor dy, dx, dgate;  // [tokens, heads, dim]
};
struct HeadGrads {
  Tensor dq, dk, dv;  // [tokens, heads, head_dim], of dk and dv kv_heads
  Tensor dqkv;        // [tokens, (heads + 2 kv_heads) · head_dim]
};

}  // namespace temper::backends
