#include "ops/latent_heads/latent_heads.h"

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/latent_heads/composition.h"
#include "ops/latent_heads/grads.h"
#include "ops/op_listener.h"
#include "primitives/primitives.h"

namespace temper::ops {

namespace p = primitives;

ExpandedHeads compose_latent_heads(Tape& tape, const Var& kv, const Var& k_rope, const LatentHeads& op) {
  const int64_t tokens = kv.shape()[0], rope = k_rope.shape()[1], width = kv.shape()[1] / op.heads;
  const Var heads = p::reshape(tape, kv, {tokens, op.heads, width});
  // The sum over heads, in which the shared part's gradient ends, is float32.
  const Var zeros =
      tape.constant(Tensor::zeros({1, op.heads, 1}, DType::kF32, MemoryTag::kActivations, kv.value.device()));
  const Var wide = p::cast(tape, p::reshape(tape, k_rope, {tokens, 1, rope}), DType::kF32);
  const Var shared = p::cast(tape, p::add(tape, wide, zeros), kv.dtype());
  const Var v = p::narrow(tape, heads, 2, op.nope_dim, width - op.nope_dim);
  return {p::concat_last(tape, p::narrow(tape, heads, 2, 0, op.nope_dim), shared),
          p::reshape(tape, v, v.shape())};
}

namespace {

void check(const LatentHeads& op) {
  constexpr auto name = LatentHeads::kName;
  check_ndim(name, "kv", op.kv, 2);
  check_float(name, "kv", op.kv);
  check_contiguous(name, "kv", op.kv);
  check_ndim(name, "k_rope", op.k_rope, 2);
  check_shape(name, "k_rope", op.k_rope, {op.kv.dim(0), op.k_rope.dim(1)});
  check_dtype(name, "k_rope", op.k_rope, op.kv.dtype());
  check_contiguous(name, "k_rope", op.k_rope, 1);
  if (op.heads < 1 || op.nope_dim < 1 || op.kv.dim(1) % op.heads != 0 || op.value_dim() < 1)
    fail("[latent_heads] kv is {}, needs the width of {} heads of more than {} entries",
         to_string(op.kv.shape()), op.heads, op.nope_dim);
}

LatentHeads::Output outline_forward(const LatentHeads& op) {
  const int64_t tokens = op.kv.dim(0);
  return {empty_like(op.kv, {tokens, op.heads, op.nope_dim + op.rope_dim()}),
          empty_like(op.kv, {tokens, op.heads, op.value_dim()})};
}

LatentHeads::Grads outline_backward(const LatentHeads& op, const Tensor& dk, const Tensor& dv) {
  return {empty_like(dk, {dk.dim(0), op.heads * (op.nope_dim + dv.dim(2))}),
          empty_like(dk, {dk.dim(0), dk.dim(2) - op.nope_dim})};
}

}  // namespace

Outline<LatentHeads> latent_heads_outline() { return {outline_forward, outline_backward}; }

ExpandedHeads latent_heads(Tape& tape, Bound<LatentHeads> bound, const Var& kv, const Var& k_rope,
                           LatentHeads op) {
  op.kv = kv.value;
  op.k_rope = k_rope.value;
  check(op);
  const trace::Span span("latent_heads", [&] {
    const auto own = static_cast<double>(op.kv.bytes()), shared = static_cast<double>(op.k_rope.bytes());
    const double moved = 2 * own + shared * (1 + static_cast<double>(op.heads));
    return trace::OpWork{{0, moved}, {0, moved}};
  });
  const auto& kernel = *bound;
  if (kernel.compose != nullptr)
    return observed(LatentHeads::kName, Tensor(), kernel.compose(tape, kv, k_rope, op),
                    {&ExpandedHeads::k, &ExpandedHeads::v});
  const LatentHeads::Output out = kernel.forward(op);
  op.kv = op.k_rope = {};
  auto vars = tape.record({out.k, out.v}, {&kv, &k_rope},
                          [op, k_shape = out.k.shape(), v_shape = out.v.shape(), kv = kv.slot,
                           k_rope = k_rope.slot, &kernel](const std::vector<Tensor>& grads) {
                            const auto [dk, dv] = readable_grads(grads, k_shape, v_shape);
                            const LatentHeads::Grads found = kernel.backward(op, dk, dv);
                            if (kv) kv->add(found.kv);
                            if (k_rope) k_rope->add(found.k_rope);
                          });
  return observed(LatentHeads::kName, Tensor(), ExpandedHeads{vars[0], vars[1]},
                  {&ExpandedHeads::k, &ExpandedHeads::v});
}

}  // namespace temper::ops
