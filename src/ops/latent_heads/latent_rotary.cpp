#include "ops/latent_heads/latent_rotary.h"

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/latent_heads/composition.h"
#include "ops/latent_heads/grads.h"
#include "ops/op_listener.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

struct Halves {
  Var low, high;  // [tokens, heads, rope_dim / 2]
};

Halves halves_of(Tape& tape, const Var& x, bool interleaved) {
  const int64_t tokens = x.shape()[0], heads = x.shape()[1], half = x.shape()[2] / 2;
  if (!interleaved) return {p::narrow(tape, x, 2, 0, half), p::narrow(tape, x, 2, half, half)};
  const Var pairs = p::reshape(tape, x, {tokens, heads, half, 2});
  const auto every_other = [&](int64_t first) {
    return p::reshape(tape, p::narrow(tape, pairs, 3, first, 1), {tokens, heads, half});
  };
  return {every_other(0), every_other(1)};
}

}  // namespace

RotatedLatent compose_latent_rotary(Tape& tape, const Var& q, const Var& k_rope, const LatentRotary& op) {
  const int64_t tokens = q.shape()[0], rope = k_rope.shape()[1], nope = q.shape()[1] / op.heads - rope;
  const auto at_tokens = [&](const Tensor& table) {
    return p::reshape(tape, p::gather_rows(tape, tape.constant(table), {op.positions, table.dim(0), false}),
                      {tokens, 1, rope / 2});
  };
  const Var cos = at_tokens(op.cos), sin = at_tokens(op.sin);
  const auto rotated = [&](const Var& x) {
    const auto [a, b] = halves_of(tape, p::cast(tape, x, DType::kF32), op.interleaved);
    const Var low = p::sub(tape, p::mul(tape, a, cos), p::mul(tape, b, sin));
    const Var high = p::add(tape, p::mul(tape, b, cos), p::mul(tape, a, sin));
    return p::cast(tape, p::concat_last(tape, low, high), q.dtype());
  };
  const Var heads = p::reshape(tape, q, {tokens, op.heads, nope + rope});
  const Var shared = rotated(p::reshape(tape, k_rope, {tokens, 1, rope}));
  return {p::concat_last(tape, p::narrow(tape, heads, 2, 0, nope),
                         rotated(p::narrow(tape, heads, 2, nope, rope))),
          p::reshape(tape, shared, {tokens, rope})};
}

namespace {

void check(const LatentRotary& op) {
  constexpr auto name = LatentRotary::kName;
  check_ndim(name, "q", op.q, 2);
  check_float(name, "q", op.q);
  check_contiguous(name, "q", op.q, 1);
  check_ndim(name, "k_rope", op.k_rope, 2);
  check_shape(name, "k_rope", op.k_rope, {op.q.dim(0), op.k_rope.dim(1)});
  check_dtype(name, "k_rope", op.k_rope, op.q.dtype());
  check_contiguous(name, "k_rope", op.k_rope, 1);
  if (op.rope_dim() % 2 != 0)
    fail("[latent_rotary] k_rope has {} columns, needs an even number", op.rope_dim());
  if (op.heads < 1 || op.q.dim(1) % op.heads != 0 || op.head_dim() <= op.rope_dim())
    fail("[latent_rotary] q is {}, needs the width of {} heads of more than {} entries",
         to_string(op.q.shape()), op.heads, op.rope_dim());
  check_rotary_tables(name, op.positions, op.q.dim(0), op.cos, op.sin);
  check_shape(name, "cos", op.cos, {op.cos.dim(0), op.rope_dim() / 2});
}

}  // namespace

RotatedLatent latent_rotary(Tape& tape, Bound<LatentRotary> bound, const Var& q, const Var& k_rope,
                            LatentRotary op) {
  op.q = q.value;
  op.k_rope = k_rope.value;
  check(op);
  const trace::Span span("latent_rotary", [&] {
    const auto moved = static_cast<double>(op.q.bytes() + op.k_rope.bytes());
    return trace::OpWork{{0, 2 * moved}, {0, 2 * moved}};
  });
  const auto& kernel = *bound;
  if (kernel.compose != nullptr)
    return observed(LatentRotary::kName, Tensor(), kernel.compose(tape, q, k_rope, op),
                    {&RotatedLatent::q, &RotatedLatent::k_rope});
  const LatentRotary::Output out = kernel.forward(op);
  op.q = op.k_rope = {};
  auto vars = tape.record({out.q, out.k_rope}, {&q, &k_rope},
                          [op, q_shape = out.q.shape(), k_shape = out.k_rope.shape(), q = q.slot,
                           k_rope = k_rope.slot, &kernel](const std::vector<Tensor>& grads) {
                            const auto [dq, dk_rope] = readable_grads(grads, q_shape, k_shape);
                            const LatentRotary::Grads found = kernel.backward(op, dq, dk_rope);
                            if (q) q->add(found.q);
                            if (k_rope) k_rope->add(found.k_rope);
                          });
  return observed(LatentRotary::kName, Tensor(), RotatedLatent{vars[0], vars[1]},
                  {&RotatedLatent::q, &RotatedLatent::k_rope});
}

namespace {

LatentRotary::Output outline_forward(const LatentRotary& op) {
  return {empty_like(op.q, {op.q.dim(0), op.heads, op.head_dim()}), empty_like(op.q, op.k_rope.shape())};
}

LatentRotary::Grads outline_backward(const LatentRotary&, const Tensor& dq, const Tensor& dk_rope) {
  return {empty_like(dq, {dq.dim(0), dq.dim(1) * dq.dim(2)}), empty_like(dq, dk_rope.shape())};
}

}  // namespace

Probe latent_rotary_probe, latent_heads_probe;

void register_latent_heads() {
  const OpNames names{.cpu = {{{"simd", "simd"}}}, .gpu = {{{"cuda", "cuda"}}}};
  register_op<LatentRotary>(compose_latent_rotary, latent_rotary_probe, {outline_forward, outline_backward},
                            names);
  register_op<LatentHeads>(compose_latent_heads, latent_heads_probe, latent_heads_outline(), names);
}

}  // namespace temper::ops
