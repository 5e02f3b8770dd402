#include "ops/global_norm/global_norm.h"

#include <algorithm>
#include <cmath>

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/op_info.h"

namespace temper::ops {
namespace {

Tensor compose(const GlobalNorm& op) {
  double sum = 0;
  for (const Tensor& grad : op.grads) {
    double part = 0;
    const Tensor here = grad.on({}).to(DType::kF32);
    for (const float g : here.values<float>()) part += double{g} * g;
    sum += part;
  }
  return norm_of_squares(sum, op.in_two).on(op.device);
}

}  // namespace

Tensor norm_of_squares(double sum, bool in_two) {
  const double root = std::sqrt(sum);
  auto first = static_cast<float>(root);
  if (!in_two) return Tensor::from(std::vector<float>{first});
  if (double{first} > root) first = std::nextafter(first, 0.f);
  const double rest = std::isfinite(first) ? std::max(0.0, sum - double{first} * first) : 0;
  return Tensor::from(std::vector<float>{first, static_cast<float>(std::sqrt(rest))});
}

Tensor global_norm(Bound<GlobalNorm> bound, const GlobalNorm& op) {
  for (const Tensor& grad : op.grads) {
    if (grad.dtype() != DType::kBF16) check_dtype(GlobalNorm::kName, "grad", grad, DType::kF32);
    check_dtype(GlobalNorm::kName, "grad", grad, op.grads.front().dtype());
    check_contiguous(GlobalNorm::kName, "grad", grad);
  }
  const trace::Span span(GlobalNorm::kName, [&] {
    double bytes = 0;
    for (const Tensor& grad : op.grads) bytes += static_cast<double>(grad.bytes());
    return trace::OpWork{{0, bytes}, {}};
  });
  const auto& kernel = *bound;
  return kernel.compose != nullptr ? kernel.compose(op) : kernel.forward(op);
}

namespace {

Tensor outline_norm(const GlobalNorm& op) {
  return Tensor::empty({op.in_two ? 2 : 1}, DType::kF32, MemoryTag::kActivations, op.device);
}

}  // namespace

Probe global_norm_probe;

void register_global_norm() {
  register_op<GlobalNorm>(compose, global_norm_probe, {outline_norm, nullptr, outline_norm},
                          {.cpu = {{{"simd", "simd"}}}, .gpu = {{{"cuda", "cuda"}}}});
}

}  // namespace temper::ops
