#include "layers/glue.h"

namespace temper::layers {

Var residual_add(Tape& tape, const Var& x, const Var& branch) {
  const Tensor sum = x.value.clone();
  add_in_place(sum, branch.value);
  return tape.record(sum, {&x, &branch}, [x = x.slot, branch = branch.slot](const Tensor& grad) {
    if (x) x->add(grad);
    if (branch) branch->add(grad);
  });
}

Var merge_heads(Tape& tape, const Var& x) {
  const Shape shape = x.shape();
  return tape.record(
      x.value.contiguous().reshape({shape[0], shape[1] * shape[2]}), {&x},
      [slot = x.slot, shape](const Tensor& grad) { slot->add(grad.contiguous().reshape(shape)); });
}

}  // namespace temper::layers
