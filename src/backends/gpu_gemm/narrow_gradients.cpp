#include "backends/gpu_gemm/narrow_gradients.h"

#include "backends/gpu_gemm/product.h"

namespace temper::backends {

void narrow_gradients(const NarrowGradients& op) {
  for (const auto& slice : op.slices) {
    const Tensor dy = op.dy.narrow(1, slice.column, slice.b.dim(0));
    multiply({.a = dy, .b = slice.b, .d = slice.dlow, .scale = slice.scale});
    if (slice.db.wanted())
      multiply({.a = dy,
                .b = slice.low,
                .d = slice.db.buffer,
                .transpose_a = true,
                .accumulate = slice.db.accumulate});
  }
}

}  // namespace temper::backends
