#include "primitives/amax.h"

#include "base/trace.h"
#include "primitives/device_functions.h"
#include "primitives/primitives.h"

namespace temper::primitives {

void grow_amax(const Tensor& x, const Tensor& amax) {
  quant::groups_of("amax", x.shape(), amax.shape());
  const trace::Span span("amax", [&] { return trace::OpWork{{0, static_cast<double>(x.bytes())}, {}}; });
  const bool compact_rows = x.is_contiguous_from(1);
  primitive_functions(x.device()).grow_amax(compact_rows ? x : x.contiguous(), amax);
}

Tensor amax_of(const Tensor& x, const Shape& shape) {
  Tensor amax = Tensor::zeros(shape, DType::kF32, MemoryTag::kActivations, x.device());
  grow_amax(x, amax);
  return amax;
}

Tensor amax_of_rows(const Tensor& amax, const Tensor& ids) {
  const int64_t rows = ids.dim(0);
  const Tensor own = Tensor::empty({rows, 1}, DType::kF32, MemoryTag::kActivations, amax.device());
  if (rows == 0 || only_counts(amax.device())) return own;
  Tape tape(false);
  const Var none = tape.constant(Tensor::zeros({rows, 1}, DType::kF32, MemoryTag::kWorkspace, amax.device()));
  const Var all = add(tape, none, tape.constant(amax.reshape({1, amax.numel()})));  // [rows, experts]
  primitive_functions(amax.device()).take_last(all.value, ids, own);
  return own;
}

Tensor rows_of_experts(const Tensor& factors, const Tensor& ids) {
  const int64_t rows = ids.dim(0), columns = factors.dim(-1);
  const Tensor own = Tensor::empty({rows, columns}, DType::kF32, MemoryTag::kActivations, factors.device());
  if (rows == 0 || only_counts(factors.device())) return own;
  primitive_functions(factors.device())
      .sum_listed_rows(factors.reshape({factors.dim(0), columns}), {}, ids.reshape({rows}), own);
  return own;
}

}  // namespace temper::primitives
