#include "ops/gelu/gelu.h"

#include <numbers>

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/op_info.h"
#include "ops/op_listener.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

// What x is multiplied by.
Var part_below(Tape& tape, const Var& x, GeluForm form) {
  if (form == GeluForm::kQuick) return p::sigmoid(tape, p::scale(tape, x, kQuickGeluScale));
  if (form == GeluForm::kErf) {
    constexpr auto kOneOverRoot = static_cast<float>(std::numbers::sqrt2 / 2);
    return p::scale(tape, p::add_scalar(tape, p::erf(tape, p::scale(tape, x, kOneOverRoot)), 1), 0.5f);
  }
  const Var square = p::scale(tape, p::mul(tape, x, x), kTanhGeluCubic);
  const Var inner = p::scale(tape, p::mul(tape, x, p::add_scalar(tape, square, 1)), kTanhGeluScale);
  return p::sigmoid(tape, inner);
}

Var compose(Tape& tape, const Var& x, GeluForm form) {
  const Var wide = p::cast(tape, x, DType::kF32);
  return p::cast(tape, p::mul(tape, wide, part_below(tape, wide, form)), x.dtype());
}

}  // namespace

Var gelu(Tape& tape, Bound<Gelu> bound, const Var& x, GeluForm form) {
  check_ndim(Gelu::kName, "x", x.value, 2);
  check_float(Gelu::kName, "x", x.value);
  check_contiguous(Gelu::kName, "x", x.value);
  const trace::Span span(Gelu::kName, [&] {
    const auto bytes = static_cast<double>(x.value.bytes());
    return trace::OpWork{{0, 2 * bytes}, {0, 3 * bytes}};
  });
  const auto& kernel = *bound;
  if (kernel.compose != nullptr) return observed(Gelu::kName, Tensor(), kernel.compose(tape, x, form));
  const Gelu op{x.value, form};
  Var y = tape.record(kernel.forward(op), {&x}, [op, slot = x.slot, &kernel](const Tensor& dy) {
    slot->add(kernel.backward(op, dy.contiguous()));
  });
  if (tape.rematerializes())
    y.remake = std::make_shared<Remake>([op, &kernel] { return kernel.forward(op); });
  return observed(Gelu::kName, Tensor(), std::move(y));
}

namespace {

Tensor outline_forward(const Gelu& op) { return empty_like(op.x, op.x.shape()); }
Tensor outline_backward(const Gelu& op, const Tensor&) { return empty_like(op.x, op.x.shape()); }

}  // namespace

Probe gelu_probe;

void register_gelu() {
  register_op<Gelu>(compose, gelu_probe, {outline_forward, outline_backward},
                    {.cpu = {{{"simd", "simd"}}}, .gpu = {{{"cuda", "cuda"}}}});
}

}  // namespace temper::ops
