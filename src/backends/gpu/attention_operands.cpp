#include "backends/gpu/attention_operands.h"

namespace temper::backends {

using ops::Attention;

Tensor readable(const Tensor& tensor, bool compact) {
  constexpr int64_t kAlignment = 16;
  const bool aligned = reinterpret_cast<uintptr_t>(tensor.raw()) % kAlignment == 0 &&
                       tensor.stride(0) * size_of(tensor.dtype()) % kAlignment == 0;
  if (aligned && (!compact || tensor.is_contiguous())) return tensor;
  return tensor.clone();
}

void* rows(const Tensor& tensor, int64_t first) {
  return static_cast<std::byte*>(tensor.raw()) + first * tensor.stride(0) * size_of(tensor.dtype());
}

Attention::Grads empty_gradients(const Attention& op, bool joined) {
  const int64_t heads = op.q.dim(1), kv_heads = op.k.dim(1);
  const auto empty = [&](const Shape& shape) {
    return Tensor::empty(shape, op.q.dtype(), MemoryTag::kActivations, op.q.device());
  };
  if (!joined || op.v.dim(2) != op.q.dim(2))
    return {empty(op.q.shape()), empty(op.k.shape()), empty(op.v.shape())};
  const Tensor all = empty({op.q.dim(0), heads + 2 * kv_heads, op.q.dim(2)});
  return {all.narrow(1, 0, heads), all.narrow(1, heads, kv_heads), all.narrow(1, heads + kv_heads, kv_heads)};
}

}  // namespace temper::backends
