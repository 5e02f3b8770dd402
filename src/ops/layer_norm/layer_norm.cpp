#include "ops/layer_norm/layer_norm.h"

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/op_info.h"
#include "ops/op_listener.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

LayerNormedSum compose(Tape& tape, const Var& x, const Var& residual, const Var& weight, const Var& bias,
                       float eps) {
  const Var sum = residual.value.defined() ? p::add(tape, x, residual) : x;
  const Var wide = p::cast(tape, sum, DType::kF32);
  const float share = 1 / static_cast<float>(x.shape()[x.value.ndim() - 1]);
  const Var centred = p::sub(tape, wide, p::scale(tape, p::sum_last(tape, wide), share));
  const Var variance = p::scale(tape, p::sum_last(tape, p::mul(tape, centred, centred)), share);
  const Var normed = p::mul(tape, centred, p::rsqrt(tape, p::add_scalar(tape, variance, eps)));
  const Var y = p::add(tape, p::mul(tape, normed, p::cast(tape, weight, DType::kF32)),
                       p::cast(tape, bias, DType::kF32));
  return {sum, p::cast(tape, y, x.dtype())};
}

void check(const LayerNorm& op) {
  constexpr auto name = LayerNorm::kName;
  check_float(name, "x", op.x);
  if (op.x.ndim() < 1) fail("[layer_norm] x is a scalar, needs [..., hidden]");
  check_contiguous(name, "x", op.x);
  for (const auto& [label, tensor] : {std::pair{"weight", &op.weight}, {"bias", &op.bias}}) {
    check_shape(name, label, *tensor, {op.x.dim(-1)});
    check_dtype(name, label, *tensor, op.x.dtype());
    check_contiguous(name, label, *tensor);
  }
  if (op.residual.defined()) {
    check_shape(name, "residual", op.residual, op.x.shape());
    check_dtype(name, "residual", op.residual, op.x.dtype());
    check_contiguous(name, "residual", op.residual);
  }
  if (!(op.eps >= 0)) fail("[layer_norm] eps is {}, needs a value of 0 or more", op.eps);
}

}  // namespace

LayerNormedSum add_layer_norm(Tape& tape, Bound<LayerNorm> bound, const Var& x, const Var& residual,
                              const Var& weight, const Var& bias, float eps) {
  const LayerNorm given{x.value, residual.value, weight.value, bias.value, eps};
  check(given);
  const trace::Span span(LayerNorm::kName, [&] {
    const auto bytes = static_cast<double>(x.value.bytes());
    const bool sums = residual.value.defined();
    return trace::OpWork{{0, (sums ? 4 : 2) * bytes}, {0, (sums ? 4 : 3) * bytes}};
  });
  const auto& kernel = *bound;
  const auto observe = [&](LayerNormedSum both) {
    return observed(LayerNorm::kName, weight.value, std::move(both),
                    {&LayerNormedSum::sum, &LayerNormedSum::y});
  };
  if (kernel.compose != nullptr) return observe(kernel.compose(tape, x, residual, weight, bias, eps));
  const LayerNorm::Output out = kernel.forward(given);
  const LayerNorm op{out.sum.defined() ? out.sum : x.value, {}, weight.value, bias.value, eps};
  auto vars = tape.record({op.x, out.y}, {&x, &residual, &weight, &bias},
                          [op, stats = out.stats, x = x.slot, residual = residual.slot, weight = weight.slot,
                           bias = bias.slot, &kernel](const std::vector<Tensor>& grads) {
                            Tensor dx = grads[0];
                            if (grads[1].defined())
                              dx = kernel.backward(op, stats, grads[1].contiguous(),
                                                   dx.defined() ? dx.contiguous() : dx,
                                                   weight ? weight->target(op.weight) : GradTarget{},
                                                   bias ? bias->target(op.bias) : GradTarget{});
                            if (x) x->add(dx);
                            if (residual) residual->add(dx);
                          });
  if (tape.rematerializes())
    vars[1].remake = std::make_shared<Remake>([op, &kernel] { return kernel.forward(op).y; });
  return observe({vars[0], vars[1]});
}

namespace {

LayerNorm::Output outline_forward(const LayerNorm& op) {
  const auto empty = [&] { return empty_like(op.x, op.x.shape()); };
  return {empty(), empty_like(op.x, {op.x.numel() / op.x.dim(-1), 2}, DType::kF32),
          op.residual.defined() ? empty() : Tensor()};
}

Tensor outline_backward(const LayerNorm& op, const Tensor&, const Tensor&, const Tensor&, const GradTarget&,
                        const GradTarget&) {
  return empty_like(op.x, op.x.shape());
}

}  // namespace

Probe layer_norm_probe;

void register_layer_norm() {
  register_op<LayerNorm>(
      compose, layer_norm_probe, {outline_forward, outline_backward},
      {.cpu = {{{"simd", "simd"}}}, .gpu = {{{"cuda", "cuda"}, {"liger_kernel", "cuda"}}}});
}

}  // namespace temper::ops
