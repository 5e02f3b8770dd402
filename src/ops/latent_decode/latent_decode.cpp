#include "ops/latent_decode/latent_decode.h"

#include "ops/checks.h"
#include "ops/op_info.h"
#include "ops/op_listener.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

void check_weight_and_cache(const LatentDecode& op, const primitives::Matrix& weight) {
  constexpr auto name = LatentDecode::kName;
  check_ndim(name, "q", op.q, 3);
  check_float(name, "q", op.q);
  check_contiguous(name, "q", op.q);
  check_weight(name, weight, op.q.dtype());
  const int64_t sequences = op.q.dim(0), heads = op.q.dim(1), rank = weight.shape()[1];
  check_ndim(name, "cache", op.cache, 3);
  const int64_t width = op.cache.dim(2), nope = op.q.dim(2) - (width - rank);
  // As many tokens as sequences: one of each.
  check_paged_sequences(name, op.sequences, sequences, op.cache.dim(0), op.cache.dim(1));
  check_shape(name, "latent", op.latent, {sequences, width});
  for (const auto& [label, tensor] : {std::pair{"cache", &op.cache}, {"latent", &op.latent}}) {
    check_dtype(name, label, *tensor, op.q.dtype());
    check_contiguous(name, label, *tensor);
  }
  if (width <= rank || nope < 1 || weight.shape()[0] % heads != 0 || weight.shape()[0] / heads <= nope)
    fail("[latent_decode] weight {} and a cache of {} columns do not fit {} heads of {} entries",
         to_string(weight.shape()), width, heads, op.q.dim(2));
  if (op.a.defined() || op.b.defined()) {
    check_ndim(name, "a", op.a, 2);
    check_shape(name, "a", op.a, {op.a.dim(0), rank});
    check_shape(name, "b", op.b, {weight.shape()[0], op.a.dim(0)});
    for (const auto& [label, tensor] : {std::pair{"a", &op.a}, {"b", &op.b}}) {
      check_dtype(name, label, *tensor, op.q.dtype());
      check_contiguous(name, label, *tensor);
    }
  }
  check_shape(name, "lengths", op.lengths, {sequences});
  check_dtype(name, "lengths", op.lengths, DType::kI32);
}

// q [heads, nope + rope], cache [keys, rank + rope], k [heads, nope, rank] and v [heads, value, rank], all
// float32 → [heads, value].
Var one_sequence(Tape& tape, const Var& q, const Var& cache, const Var& k, const Var& v, float scale) {
  const int64_t heads = q.shape()[0], nope = k.shape()[1], rank = k.shape()[2], value = v.shape()[1];
  const Var own = p::reshape(tape, p::narrow(tape, q, 1, 0, nope), {heads, 1, nope}),
            shared = p::narrow(tape, q, 1, nope, q.shape()[1] - nope);
  const Var absorbed = p::reshape(tape, p::matmul(tape, own, k), {heads, rank});
  const Var scores = p::scale(
      tape, p::matmul(tape, p::concat_last(tape, absorbed, shared), cache, {.transpose_b = true}), scale);
  const Var weights = p::exp(tape, p::sub(tape, scores, p::max_last(tape, scores)));
  const Var softmax = p::div(tape, weights, p::sum_last(tape, weights));
  const Var mixed = p::matmul(tape, softmax, p::narrow(tape, cache, 1, 0, rank));
  const Var y = p::matmul(tape, p::reshape(tape, mixed, {heads, 1, rank}), v, {.transpose_b = true});
  return p::reshape(tape, y, {heads, value});
}

// The weight with the adapter's update, float32.
Var updated_weight(Tape& tape, const LatentDecode& op) {
  const auto wide = [&](const Tensor& x) { return p::cast(tape, tape.constant(x), DType::kF32); };
  if (!op.a.defined()) return wide(op.weight);
  const Var update = p::scale(tape, p::matmul(tape, wide(op.b), wide(op.a)), op.update_scale);
  return p::add(tape, wide(op.weight), update);
}

Tensor compose(const LatentDecode& op) {
  Tape tape(false);
  const int64_t heads = op.q.dim(1), nope = op.nope_dim(), value = op.value_dim();
  const Var weight = p::reshape(tape, updated_weight(tape, op), {heads, nope + value, op.rank()});
  const Var k = p::narrow(tape, weight, 1, 0, nope), v = p::narrow(tape, weight, 1, nope, value);
  write_pages(op.cache, op.sequences, op.latent);
  const Tensor y =
      Tensor::empty({op.q.dim(0), heads, value}, op.q.dtype(), MemoryTag::kActivations, op.q.device());
  const auto wide = [&](const Tensor& x) { return p::cast(tape, tape.constant(x), DType::kF32); };
  for (int64_t s = 0; s < op.sequences.count(); ++s) {
    const Var q = wide(op.q.narrow(0, s, 1).reshape({heads, op.q.dim(2)})),
              cache = wide(read_pages(op.cache, op.sequences.part(s, 1)));
    const Var one = p::cast(tape, one_sequence(tape, q, cache, k, v, op.scale), op.q.dtype());
    y.narrow(0, s, 1).copy_from(one.value.contiguous().reshape({1, heads, value}));
  }
  return y;
}

Tensor outline_forward(const LatentDecode& op) {
  return empty_like(op.q, {op.q.dim(0), op.q.dim(1), op.value_dim()});
}

}  // namespace

Tensor latent_decode(Bound<LatentDecode> bound, const primitives::Matrix& weight, LatentDecode op) {
  check_weight_and_cache(op, weight);
  op.weight = weight.value.saved().get();
  const auto& kernel = *bound;
  return observed(LatentDecode::kName, weight.value.value,
                  kernel.compose != nullptr ? kernel.compose(op) : kernel.forward(op));
}

Probe latent_decode_probe;

void register_latent_decode() {
  register_op<LatentDecode>(compose, latent_decode_probe, {outline_forward},
                            {.cpu = {{{"onednn", "onednn"}}}});
}

}  // namespace temper::ops
