#include "ops/swiglu/swiglu.h"
#include "backends/floats.h"
#include "backends/gpu/swiglu_rows.h"

namespace temper::backends {
namespace {

using ops::Swiglu;

Tensor empty_like(const Tensor& gate_up, int64_t columns) {
  return Tensor::empty({gate_up.dim(0), columns}, gate_up.dtype(), MemoryTag::kActivations, gate_up.device());
}

Tensor forward(const Swiglu& op) {
  const Tensor y = empty_like(op.gate_up, op.gate_up.dim(1) / 2);
  write_swiglu(op.gate_up, y, op.activation);
  return y;
}

Tensor backward(const Swiglu& op, const Tensor& dy, const Tensor& y) {
  const Tensor dgate_up = empty_like(op.gate_up, op.gate_up.dim(1));
  write_swiglu_backward(op.gate_up, dy, dgate_up, y, op.activation);
  return dgate_up;
}

}  // namespace

void register_cuda_swiglu() {
  ops::kernels<Swiglu>().add("cuda", {.hardware = hardware::kGpu,
                                      .accepts = refuse_float16<Swiglu::Signature>,
                                      .forward = forward,
                                      .backward = backward,
                                      .traits = {.in_products = true}});
}

}  // namespace temper::backends
