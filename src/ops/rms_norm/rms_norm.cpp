#include "ops/rms_norm/rms_norm.h"

#include "ops/checks.h"
#include "ops/op_info.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

Var compose(Tape& tape, const Var& x, const Var& weight, float eps) {
  const Var wide = p::cast(tape, x, DType::kF32);
  const Var mean =
      p::scale(tape, p::sum_last(tape, p::mul(tape, wide, wide)), 1.0f / static_cast<float>(x.value.dim(-1)));
  const Var inv_rms = p::rsqrt(tape, p::add_scalar(tape, mean, eps));
  const Var y = p::mul(tape, p::mul(tape, wide, inv_rms), p::cast(tape, weight, DType::kF32));
  return p::cast(tape, y, x.dtype());
}

}  // namespace

Var rms_norm(Tape& tape, const BoundOps& ops, const Var& x, const Var& weight, float eps) {
  constexpr auto op_name = RmsNorm::kName;
  check_float(op_name, "x", x.value);
  if (x.value.ndim() < 1) fail("[rms_norm] x is a scalar, needs [..., hidden]");
  check_shape(op_name, "weight", weight.value, {x.value.dim(-1)});
  check_dtype(op_name, "weight", weight.value, x.dtype());
  check_contiguous(op_name, "x", x.value, 1);
  if (!(eps >= 0)) fail("[rms_norm] eps is {}, needs a value of 0 or more", eps);

  const auto& kernel = ops.get<RmsNorm>();
  if (kernel.compose != nullptr) return kernel.compose(tape, x, weight, eps);
  const RmsNorm op{x.value, weight.value, eps};
  const RmsNorm::Output out = kernel.forward(op);
  return tape.record(
      out.y, {&x, &weight},
      [op, inv_rms = out.inv_rms, x = x.slot, weight = weight.slot, &kernel](const Tensor& dy) {
        const Tensor dx =
            kernel.backward(op, inv_rms, dy.contiguous(), weight ? weight->target(op.weight) : GradTarget{});
        if (x) x->add(dx);
      });
}

Probe rms_norm_probe;

void register_rms_norm() { register_op<RmsNorm>(compose, rms_norm_probe); }

}  // namespace temper::ops
