#include "primitives/amax.h"

#include "base/tracing/trace.h"
#include "primitives/device_functions.h"

namespace temper::primitives {

void grow_amax(const Tensor& x, const Tensor& amax, quant::Extreme extreme) {
  quant::groups_of("amax", x.shape(), amax.shape());
  const trace::Span span("amax", [&] { return trace::OpWork{{0, static_cast<double>(x.bytes())}, {}}; });
  const bool compact_rows = x.is_contiguous_from(1);
  primitive_functions(x.device()).grow_amax(compact_rows ? x : x.contiguous(), amax, extreme);
}

Tensor amax_of(const Tensor& x, const Shape& shape, quant::Extreme extreme) {
  Tensor amax = Tensor::zeros(shape, DType::kF32, MemoryTag::kActivations, x.device());
  grow_amax(x, amax, extreme);
  return amax;
}

Tensor rows_of_experts(const Tensor& of_experts, const Tensor& ids) {
  const int64_t rows = ids.dim(0), columns = of_experts.dim(-1);
  const Tensor own =
      Tensor::empty({rows, columns}, DType::kF32, MemoryTag::kActivations, of_experts.device());
  if (rows == 0 || only_counts(of_experts.device())) return own;
  primitive_functions(of_experts.device())
      .sum_listed_rows(of_experts.reshape({of_experts.dim(0), columns}), {}, ids.reshape({rows}), own);
  return own;
}

}  // namespace temper::primitives
