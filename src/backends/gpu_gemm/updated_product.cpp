#include "backends/gpu_gemm/updated_product.h"

#include "backends/gpu/swiglu_rows.h"
#include "backends/gpu_gemm/product.h"

namespace temper::backends {
namespace {

// Whether every element of d gets an update: then these come first and the base's product adds to them, for
// which d passes through memory once less. The other way round, d would be read and written again for a few
// operations.
bool reach_all(const UpdatedProduct& p) {
  int64_t reached = 0;
  for (const auto& update : p.updates) reached += update.low.dim(0) * update.columns(p.transpose_b);
  return reached == p.d.numel();
}

void write_updates(const UpdatedProduct& p, bool accumulate) {
  for (const auto& update : p.updates)
    multiply({.a = update.low,
              .b = update.b,
              .d = p.d.narrow(0, update.row, update.low.dim(0))
                       .narrow(1, update.column, update.columns(p.transpose_b)),
              .transpose_b = p.transpose_b,
              .accumulate = accumulate});
}

}  // namespace

void add_updates(const UpdatedProduct& p) {
  write_updates(p, true);
  if (p.y.defined()) write_swiglu(p.d, p.y);
}

void multiply_and_update(const UpdatedProduct& p) {
  if (p.gate_up.defined()) {
    UpdatedProduct product = p;
    product.gate_up = product.y = {};
    product.d = p.y;  // its memory is free until then
    if (!p.y.defined())
      product.d =
          Tensor::empty({p.d.dim(0), p.columns()}, p.d.dtype(), MemoryTag::kActivations, p.d.device());
    multiply_and_update(product);
    if (!only_counts(p.d.device())) write_swiglu_backward(p.gate_up, product.d, p.d, p.y);
    return;
  }
  const bool updates_first = reach_all(p);
  if (updates_first) write_updates(p, false);
  multiply({.a = p.a,
            .b = p.b,
            .d = p.d,
            .transpose_b = p.transpose_b,
            .accumulate = updates_first,
            .bias = p.bias});
  if (!updates_first) write_updates(p, true);
  if (p.y.defined() && !only_counts(p.d.device())) write_swiglu(p.d, p.y);
}

}  // namespace temper::backends
