#pragma once
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace temper::ops {

// Two gradients as kernels take them: compact except for the stride of tokens. At least one arrived; one that
// did not is zero.
inline std::pair<Tensor, Tensor> readable_grads(const std::vector<Tensor>& grads, const Shape& first,
                                                const Shape& second) {
  const Tensor& like = grads[0].defined() ? grads[0] : grads[1];
  const auto readable = [&](const Tensor& grad, const Shape& shape) {
    if (!grad.defined()) return Tensor::zeros(shape, like.dtype(), MemoryTag::kActivations, like.device());
    return grad.is_contiguous_from(shape.ndim() - 1) ? grad : grad.contiguous();
  };
  return {readable(grads[0], first), readable(grads[1], second)};
}

}  // namespace temper::ops
