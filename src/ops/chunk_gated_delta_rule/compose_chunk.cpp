#include "ops/chunk_gated_delta_rule/composition.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

// [size, size] float32: 1 where `holds(row, column)`.
template <class Holds>
Tensor mask(int64_t size, Device device, const Holds& holds) {
  if (only_counts(device)) return Tensor::empty({size, size}, DType::kF32, MemoryTag::kActivations, device);
  Tensor ones = Tensor::zeros({size, size}, DType::kF32);
  float* cell = ones.data<float>();
  for (int64_t row = 0; row < size; ++row)
    for (int64_t column = 0; column < size; ++column, ++cell) *cell = holds(row, column) ? 1.f : 0.f;
  return ones.on(device);
}

// (I + a)⁻¹ of strictly lower triangular a [heads, size, size]. Inverses of blocks on the diagonal become
// those of blocks of twice the size: as accurate as substitution, and log2(size) steps of products.
Tensor inverse(const Tensor& a) {
  Tape tape(false);
  const int64_t size = a.dim(1);
  const Var whole = tape.constant(a);
  const Tensor identity = mask(size, a.device(), [](int64_t i, int64_t j) { return i == j; });
  Var x = p::add(tape, p::scale(tape, whole, 0), tape.constant(identity));
  for (int64_t block = 1; block < size; block *= 2) {
    const Tensor below = mask(size, a.device(), [block](int64_t i, int64_t j) {
      return (i / block) % 2 == 1 && j / block == i / block - 1;
    });
    const Var part = p::mul(tape, whole, tape.constant(below));
    x = p::sub(tape, x, p::matmul(tape, x, p::matmul(tape, part, x)));
  }
  return x.value;
}

// With X = (I + A)⁻¹: dA = -Xᵀ dX Xᵀ.
Var inverse_of(Tape& tape, const Var& a) {
  const Tensor x = inverse(a.value);
  return tape.record(x, {&a}, [x, slot = a.slot](const Tensor& dx) {
    Tape plain(false);
    const Var whole = plain.constant(x), turned = p::transpose(plain, whole, 1, 2);
    const Var left = p::matmul(plain, turned, plain.constant(dx));
    slot->add(p::scale(plain, p::matmul(plain, left, whole, {.transpose_b = true}), -1).value);
  });
}

// exp(Σ_{s<i≤t} g_i) at [head, s, t], 0 for t < s. Each sum begins behind s: a difference of two sums from
// the beginning would lose what follows a large decay.
Var decays(Tape& tape, const Var& g) {
  const int64_t heads = g.shape()[0], size = g.shape()[1];
  const Device device = g.value.device();
  const auto later = [](int64_t s, int64_t i) { return i > s; };
  const auto up_to = [](int64_t t, int64_t i) { return i <= t; };
  const auto seen = [](int64_t s, int64_t t) { return s <= t; };
  const Var terms =
      p::mul(tape, p::reshape(tape, g, {heads, 1, size}), tape.constant(mask(size, device, later)));
  const Var sums = p::matmul(tape, p::reshape(tape, terms, {heads * size, size}),
                             tape.constant(mask(size, device, up_to)), {.transpose_b = true});
  return p::mul(tape, p::reshape(tape, p::exp(tape, sums), {heads, size, size}),
                tape.constant(mask(size, device, seen)));
}

// exp(Σ_{i≤t} g_i), [heads, tokens, 1].
Var decays_from_start(Tape& tape, const Var& g) {
  const int64_t heads = g.shape()[0], size = g.shape()[1];
  const auto up_to = [](int64_t t, int64_t i) { return i <= t; };
  const Var sums =
      p::matmul(tape, g, tape.constant(mask(size, g.value.device(), up_to)), {.transpose_b = true});
  return p::reshape(tape, p::exp(tape, sums), {heads, size, 1});
}

// u of each token: (I + A)⁻¹ diag(beta) (V - diag(e) K S).
Var updates(Tape& tape, const DeltaChunk& c, const Var& state, const Var& decay, const Var& from_start) {
  const int64_t heads = c.beta.shape()[0], size = c.beta.shape()[1];
  const Var beta = p::reshape(tape, c.beta, {heads, size, 1});
  const Var known = p::mul(tape, from_start, p::matmul(tape, c.k, state));
  const Var wanted = p::mul(tape, p::sub(tape, c.v, known), beta);
  if (size == 1) return wanted;
  const Var strict =
      tape.constant(mask(size, c.k.value.device(), [](int64_t t, int64_t s) { return s < t; }));
  const Var alike = p::mul(tape, p::matmul(tape, c.k, c.k, {.transpose_b = true}), decay);
  const Var a = p::mul(tape, p::mul(tape, alike, beta), strict);
  return p::matmul(tape, inverse_of(tape, a), wanted);
}

}  // namespace

DeltaStep compose_delta_chunk(Tape& tape, const DeltaChunk& c, const Var& state, float scale) {
  const int64_t size = c.g.shape()[1];
  const Var to_later = decays(tape, c.g), decay = p::transpose(tape, to_later, 1, 2),
            from_start = decays_from_start(tape, c.g);
  const Var u = updates(tape, c, state, decay, from_start);
  const Var seen = p::mul(tape, p::matmul(tape, c.q, c.k, {.transpose_b = true}), decay);
  const Var y = p::add(tape, p::mul(tape, from_start, p::matmul(tape, c.q, state)), p::matmul(tape, seen, u));
  const Var kept = p::mul(tape, c.k, p::narrow(tape, to_later, 2, size - 1, 1));
  const Var whole = p::narrow(tape, from_start, 1, size - 1, 1);
  return {p::scale(tape, y, scale),
          p::add(tape, p::mul(tape, state, whole), p::matmul(tape, p::transpose(tape, kept, 1, 2), u))};
}

}  // namespace temper::ops
