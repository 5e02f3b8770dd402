#include "backends/cublaslt/cublaslt.h"
#include "backends/cublaslt/few_rows.h"
#include "backends/cublaslt/product.h"

namespace temper::backends {
namespace {

using ops::Linear;

Tensor forward(const Linear& op) {
  if (are_few_rows(op)) return few_rows(op);
  const Tensor y =
      Tensor::empty({op.x.dim(0), op.weight.dim(0)}, op.x.dtype(), MemoryTag::kActivations, op.x.device());
  multiply({.a = op.x, .b = op.weight, .d = y, .transpose_b = true, .bias = op.bias});
  return y;
}

// Sums the rows: a product with a row of ones, in float32.
void add_bias_gradient(const Tensor& dy, const GradTarget& bias) {
  const Tensor ones = Tensor::from(std::vector<float>(static_cast<size_t>(dy.dim(0)), 1.f))
                          .to(dy.dtype())
                          .on(dy.device(), MemoryTag::kWorkspace);
  multiply({.a = ones.reshape({1, dy.dim(0)}),
            .b = dy,
            .d = bias.buffer.reshape({1, dy.dim(1)}),
            .accumulate = bias.accumulate});
}

Tensor backward(const Linear& op, const Tensor& dy, bool want_dx, const GradTarget& weight,
                const GradTarget& bias) {
  Tensor dx;
  if (want_dx) {
    dx = Tensor::empty({dy.dim(0), op.weight.dim(1)}, dy.dtype(), MemoryTag::kActivations, dy.device());
    multiply({.a = dy, .b = op.weight, .d = dx});
  }
  if (weight.wanted())
    multiply({.a = dy, .b = op.x, .d = weight.buffer, .transpose_a = true, .accumulate = weight.accumulate});
  if (bias.wanted()) add_bias_gradient(dy, bias);
  return dx;
}

ops::Refusal accepts(const Linear::Signature&, const HardwareFacts& facts) {
  return refuse_without_cublaslt(facts);
}

}  // namespace

ops::Kernel<Linear> cublaslt_linear_kernel() {
  return {.hardware = hardware::kGpu, .accepts = accepts, .forward = forward, .backward = backward};
}

}  // namespace temper::backends
