#include "ops/swiglu/swiglu.h"

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/op_info.h"
#include "ops/op_listener.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

// What the sigmoid is of.
Var inner(Tape& tape, const Var& gate, Activation activation) {
  if (activation == Activation::kSilu) return gate;
  const Var square = p::scale(tape, p::mul(tape, gate, gate), kGeluCubic);
  return p::scale(tape, p::mul(tape, gate, p::add_scalar(tape, square, 1)), kGeluScale);
}

Var compose(Tape& tape, const Var& gate_up, Activation activation) {
  const int64_t intermediate = gate_up.shape()[1] / 2;
  const Var wide = p::cast(tape, gate_up, DType::kF32);
  const Var gate = p::narrow(tape, wide, 1, 0, intermediate),
            up = p::narrow(tape, wide, 1, intermediate, intermediate);
  const Var y = p::mul(tape, p::mul(tape, gate, p::sigmoid(tape, inner(tape, gate, activation))), up);
  return p::cast(tape, y, gate_up.dtype());
}

}  // namespace

Var swiglu(Tape& tape, Bound<Swiglu> bound, const Var& gate_up, const Tensor& made, Activation activation) {
  check_ndim(Swiglu::kName, "gate_up", gate_up.value, 2);
  check_float(Swiglu::kName, "gate_up", gate_up.value);
  check_contiguous(Swiglu::kName, "gate_up", gate_up.value);
  if (gate_up.shape()[1] % 2 != 0)
    fail("[swiglu] gate_up is {}, needs an even width", to_string(gate_up.shape()));

  if (made.defined()) check_shape(Swiglu::kName, "made", made, {gate_up.shape()[0], gate_up.shape()[1] / 2});

  const trace::Span span(Swiglu::kName, [&] {
    const auto bytes = static_cast<double>(gate_up.value.bytes());
    return trace::OpWork{{0, made.defined() ? 0 : 1.5 * bytes}, {0, 2.5 * bytes}};
  });
  const auto& kernel = *bound;
  invariant(!made.defined() || (kernel.traits.in_products && activation == Activation::kSilu),
            "a product's swiglu has the bits of the kernel's");
  if (kernel.compose != nullptr)
    return observed(Swiglu::kName, Tensor(), kernel.compose(tape, gate_up, activation));
  const Swiglu op{gate_up.value, activation};
  std::shared_ptr<Remake> remake;
  if (tape.rematerializes())
    remake = std::make_shared<Remake>([op, &kernel] { return kernel.forward(op); }, gate_up.requires_grad());
  Var y = tape.record(
      made.defined() ? made : kernel.forward(op), {&gate_up},
      [op, slot = gate_up.slot, remake, &kernel](const Tensor& given_dy) {
        const bool own = !given_dy.shares_storage();
        const Tensor dy = given_dy.contiguous();
        Tensor again;  // over dy, which is not needed any more
        if (remake && remake->awaited())
          again = own ? dy : Tensor::empty(dy.shape(), dy.dtype(), MemoryTag::kActivations, dy.device());
        slot->add(kernel.backward(op, dy, again));
        if (again.defined()) remake->hand_over(again);
      });
  y.remake = std::move(remake);
  return observed(Swiglu::kName, Tensor(), std::move(y));
}

namespace {

Tensor outline_forward(const Swiglu& op) {
  return empty_like(op.gate_up, {op.gate_up.dim(0), op.gate_up.dim(1) / 2});
}

Tensor outline_backward(const Swiglu& op, const Tensor&, const Tensor&) {
  return empty_like(op.gate_up, op.gate_up.shape());
}

}  // namespace

Probe swiglu_probe;

void register_swiglu() {
  register_op<Swiglu>(compose, swiglu_probe, {outline_forward, outline_backward},
                      {.cpu = {{{"simd", "simd"}}}, .gpu = {{{"cuda", "cuda"}, {"liger_kernel", "cuda"}}}});
}

}  // namespace temper::ops
