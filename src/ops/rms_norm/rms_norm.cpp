#include "ops/rms_norm/rms_norm.h"

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/op_info.h"
#include "ops/op_listener.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

NormedSum compose(Tape& tape, const Var& x, const Var& residual, const Var& weight, float eps, float offset) {
  const Var sum = residual.value.defined() ? p::add(tape, x, residual) : x;
  Var factors = p::cast(tape, weight, DType::kF32);
  if (offset != 0) factors = p::add_scalar(tape, factors, offset);
  const Var y = p::normalize_last(tape, p::cast(tape, sum, DType::kF32), factors, eps);
  return {sum, p::cast(tape, y, x.dtype())};
}

void check(const Tensor& x, const Tensor& residual, const Tensor& weight, float eps) {
  constexpr auto op = RmsNorm::kName;
  check_float(op, "x", x);
  if (x.ndim() < 1) fail("[rms_norm] x is a scalar, needs [..., hidden]");
  check_shape(op, "weight", weight, {x.dim(-1)});
  check_dtype(op, "weight", weight, x.dtype());
  check_contiguous(op, "x", x, residual.defined() ? Shape::kMaxDims : 1);
  if (residual.defined()) {
    check_shape(op, "residual", residual, x.shape());
    check_dtype(op, "residual", residual, x.dtype());
    check_contiguous(op, "residual", residual);
  }
  if (!(eps >= 0)) fail("[rms_norm] eps is {}, needs a value of 0 or more", eps);
}

}  // namespace

NormedSum add_rms_norm(Tape& tape, Bound<RmsNorm> bound, const Var& x, const Var& residual, const Var& weight,
                       float eps, float offset) {
  check(x.value, residual.value, weight.value, eps);
  const trace::Span span(RmsNorm::kName, [&] {
    const auto bytes = static_cast<double>(x.value.bytes());
    const bool sums = residual.value.defined();
    return trace::OpWork{{0, (sums ? 4 : 2) * bytes}, {0, (sums ? 4 : 3) * bytes}};
  });
  const auto& kernel = *bound;
  if (kernel.compose != nullptr)
    return observed(RmsNorm::kName, weight.value, kernel.compose(tape, x, residual, weight, eps, offset),
                    {&NormedSum::sum, &NormedSum::y});
  const RmsNorm::Output out = kernel.forward({x.value, residual.value, weight.value, eps, offset});
  const RmsNorm op{out.sum.defined() ? out.sum : x.value, {}, weight.value, eps, offset};
  auto vars = tape.record({op.x, out.y}, {&x, &residual, &weight},
                          [op, inv_rms = out.inv_rms, x = x.slot, residual = residual.slot,
                           weight = weight.slot, &kernel](const std::vector<Tensor>& grads) {
                            Tensor dx = grads[0];
                            if (grads[1].defined())
                              dx = kernel.backward(op, inv_rms, grads[1].contiguous(),
                                                   dx.defined() ? dx.contiguous() : dx,
                                                   weight ? weight->target(op.weight) : GradTarget{});
                            if (x) x->add(dx);
                            if (residual) residual->add(dx);
                          });
  if (tape.rematerializes())
    vars[1].remake = std::make_shared<Remake>([op, &kernel] { return kernel.forward(op).y; });
  return observed(RmsNorm::kName, weight.value, NormedSum{vars[0], vars[1]},
                  {&NormedSum::sum, &NormedSum::y});
}

namespace {

RmsNorm::Output outline_forward(const RmsNorm& op) {
  const auto empty = [&] { return empty_like(op.x, op.x.shape()); };
  return {empty(), empty_like(op.x, {op.x.numel() / op.x.dim(-1)}, DType::kF32),
          op.residual.defined() ? empty() : Tensor()};
}

Tensor outline_backward(const RmsNorm& op, const Tensor&, const Tensor&, const Tensor&, const GradTarget&) {
  return empty_like(op.x, op.x.shape());
}

}  // namespace

Probe rms_norm_probe;

void register_rms_norm() {
  register_op<RmsNorm>(compose, rms_norm_probe, {outline_forward, outline_backward},
                       {.cpu = {{{"simd", "simd"}}},
                        .gpu = {{{"cuda", "cuda"}, {"liger_kernel", "cuda"}}},
                        .npu = {{{"npu", "npu"}}}});
}

}  // namespace temper::ops
