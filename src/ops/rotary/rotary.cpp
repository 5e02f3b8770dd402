#include "ops/rotary/rotary.h"

#include "ops/checks.h"
#include "ops/op_info.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

Var compose(Tape& tape, const Var& x, const Tensor& positions, const Tensor& cos, const Tensor& sin) {
  const int64_t tokens = x.shape()[0], half = x.shape()[2] / 2;
  const auto at_tokens = [&](const Tensor& table) {
    return p::reshape(tape, p::gather_rows(tape, tape.constant(table), positions), {tokens, 1, half});
  };
  const Var c = at_tokens(cos), s = at_tokens(sin);
  const Var wide = p::cast(tape, x, DType::kF32);
  const Var low = p::narrow(tape, wide, 2, 0, half), high = p::narrow(tape, wide, 2, half, half);
  const Var new_low = p::sub(tape, p::mul(tape, low, c), p::mul(tape, high, s));
  const Var new_high = p::add(tape, p::mul(tape, high, c), p::mul(tape, low, s));
  return p::cast(tape, p::concat_last(tape, new_low, new_high), x.dtype());
}

}  // namespace

Var rotary(Tape& tape, const BoundOps& ops, const Var& x, const Tensor& positions, const Tensor& cos,
           const Tensor& sin) {
  constexpr auto op_name = Rotary::kName;
  check_ndim(op_name, "x", x.value, 3);
  check_float(op_name, "x", x.value);
  check_contiguous(op_name, "x", x.value, 1);
  if (x.shape()[2] % 2 != 0) fail("[rotary_pos_emb] head_dim is {}, needs an even number", x.shape()[2]);
  check_shape(op_name, "positions", positions, {x.shape()[0]});
  check_dtype(op_name, "positions", positions, DType::kI32);
  check_ndim(op_name, "cos", cos, 2);
  check_shape(op_name, "cos", cos, {cos.dim(0), x.shape()[2] / 2});
  check_shape(op_name, "sin", sin, cos.shape());
  for (const auto& [label, table] : {std::pair{"cos", &cos}, {"sin", &sin}}) {
    check_dtype(op_name, label, *table, DType::kF32);
    check_contiguous(op_name, label, *table);
  }
  for (const int32_t position : visible_ids(positions))
    if (position < 0 || position >= cos.dim(0))
      fail("[rotary_pos_emb] position {} is outside the {} positions of the model's context", position,
           cos.dim(0));

  const auto& kernel = ops.get<Rotary>();
  if (kernel.compose != nullptr) return kernel.compose(tape, x, positions, cos, sin);
  const Rotary op{x.value, positions, cos, sin};
  return tape.record(kernel.forward(op), {&x}, [op, slot = x.slot, &kernel](const Tensor& dy) {
    slot->add(kernel.backward(op, dy.contiguous()));
  });
}

Probe rotary_probe;

void register_rotary() { register_op<Rotary>(compose, rotary_probe); }

}  // namespace temper::ops
