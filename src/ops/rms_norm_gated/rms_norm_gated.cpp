#include "ops/rms_norm_gated/rms_norm_gated.h"

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/op_info.h"
#include "ops/op_listener.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

Var compose(Tape& tape, const Var& x, const Var& gate, const Var& weight, float eps) {
  const Var normed =
      p::normalize_last(tape, p::cast(tape, x, DType::kF32), p::cast(tape, weight, DType::kF32), eps);
  const Var wide = p::cast(tape, gate, DType::kF32);
  const Var silu = p::mul(tape, wide, p::sigmoid(tape, wide));
  return p::cast(tape, p::mul(tape, normed, silu), x.dtype());
}

void check(const Tensor& x, const Tensor& gate, const Tensor& weight, float eps) {
  constexpr auto name = RmsNormGated::kName;
  check_ndim(name, "x", x, 3);
  check_float(name, "x", x);
  check_contiguous(name, "x", x);
  check_shape(name, "gate", gate, x.shape());
  check_dtype(name, "gate", gate, x.dtype());
  check_contiguous(name, "gate", gate, 2);
  check_shape(name, "weight", weight, {x.dim(2)});
  if (weight.dtype() != DType::kF32) check_dtype(name, "weight", weight, x.dtype());
  check_contiguous(name, "weight", weight);
  if (!(eps >= 0)) fail("[rms_norm_gated] eps is {}, needs a value of 0 or more", eps);
}

}  // namespace

Var rms_norm_gated(Tape& tape, Bound<RmsNormGated> bound, const Var& x, const Var& gate, const Var& weight,
                   float eps) {
  check(x.value, gate.value, weight.value, eps);
  const trace::Span span(RmsNormGated::kName, [&] {
    const auto bytes = static_cast<double>(x.value.bytes());
    return trace::OpWork{{0, 3 * bytes}, {0, 5 * bytes}};
  });
  const auto& kernel = *bound;
  if (kernel.compose != nullptr)
    return observed(RmsNormGated::kName, weight.value, kernel.compose(tape, x, gate, weight, eps));
  const RmsNormGated::Output out = kernel.forward({x.value, gate.value, weight.value, eps});
  const Var result = tape.record(
      out.y, {&x, &gate, &weight},
      [inv_rms = out.inv_rms, x_saved = x.saved(), gate_saved = gate.saved(), weight_value = weight.value,
       eps, x = x.slot, gate = gate.slot, weight = weight.slot, &kernel](const Tensor& dy) {
        const RmsNormGated op{x_saved.get(), gate_saved.get(), weight_value, eps};
        const RmsNormGated::Grads grads = kernel.backward(
            op, inv_rms, dy.contiguous(), weight ? weight->target(weight_value) : GradTarget{});
        if (x) x->add(grads.x);
        if (gate) gate->add(grads.gate);
      });
  return observed(RmsNormGated::kName, weight.value, result);
}

namespace {

RmsNormGated::Output outline_forward(const RmsNormGated& op) {
  return {empty_like(op.x, op.x.shape()), empty_like(op.x, {op.x.dim(0), op.x.dim(1)}, DType::kF32)};
}

RmsNormGated::Grads outline_backward(const RmsNormGated& op, const Tensor&, const Tensor&,
                                     const GradTarget&) {
  return {empty_like(op.x, op.x.shape()), empty_like(op.x, op.x.shape())};
}

}  // namespace

Probe rms_norm_gated_probe;

void register_rms_norm_gated() {
  register_op<RmsNormGated>(compose, rms_norm_gated_probe, {outline_forward, outline_backward},
                            {.cpu = {{{"simd", "simd"}}}, .gpu = {{{"cuda", "cuda"}, {"fla", "cuda"}}}});
}

}  // namespace temper::ops
