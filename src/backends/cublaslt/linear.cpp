#include "ops/linear/linear.h"
#include "backends/gpu/sums.h"
#include "backends/gpu_gemm/few_rows.h"
#include "backends/gpu_gemm/library.h"
#include "backends/gpu_gemm/product.h"

namespace temper::backends {
namespace {

using ops::Linear;

Tensor forward(const Linear& op) {
  if (are_few_rows(op.x, op.weight) && !only_counts(op.x.device())) return few_rows(op);
  const Tensor y =
      Tensor::empty({op.x.dim(0), op.weight.dim(0)}, op.x.dtype(), MemoryTag::kActivations, op.x.device());
  multiply({.a = op.x, .b = op.weight, .d = y, .transpose_b = true, .bias = op.bias});
  return y;
}

Tensor forward_alike(const Linear& op) {
  const Tensor y =
      Tensor::empty({op.x.dim(0), op.weight.dim(0)}, op.x.dtype(), MemoryTag::kActivations, op.x.device());
  multiply({.a = op.x, .b = op.weight, .d = y, .transpose_b = true, .bias = op.bias, .alike = true});
  return y;
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
  if (bias.wanted()) add_row_sums(dy, bias);
  return dx;
}

ops::Refusal accepts_alike(const Linear::Signature& signature, const HardwareFacts&) {
  if (signature.dtype != DType::kBF16) return "dtype must be bfloat16";
  return std::nullopt;
}

}  // namespace

void register_cublaslt_linear() {
  ops::kernels<Linear>().add("cublaslt", {.hardware = hardware::kGpu,
                                          .accepts = ops::accept_all<Linear::Signature>,
                                          .forward = forward,
                                          .backward = backward,
                                          .missing = refuse_without_cublaslt,
                                          .traits = {.reads_codes = are_few_rows},
                                          .outline = {forward, backward}});
  ops::kernels<Linear>().add("cublaslt_invariant", {.hardware = hardware::kGpu,
                                                    .accepts = accepts_alike,
                                                    .forward = forward_alike,
                                                    .backward = backward,
                                                    .missing = refuse_without_cublaslt,
                                                    .batch_invariant = true,
                                                    .outline = {forward_alike, backward}});
}

}  // namespace temper::backends
