#include "primitives/amax.h"

#include "base/trace.h"
#include "primitives/device_functions.h"

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

}  // namespace temper::primitives
