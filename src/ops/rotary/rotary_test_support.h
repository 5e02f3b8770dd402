#pragma once
#include <cmath>

#include "ops/rotary/rotary.h"
#include "primitives/primitives.h"
#include "tests/support/op_testing.h"

// Cases of rotary_pos_emb, and what they must give.
namespace temper::ops::rotary_testing {

using namespace op_testing;

struct Tables {
  Tensor cos, sin;  // [positions, half]
};

inline Tables tables(int64_t positions, int64_t half, double scaling = 1) {
  const Shape shape{positions, half};
  Doubles cos, sin;
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(10000, -static_cast<double>(i) / static_cast<double>(half));
      cos.push_back(scaling * std::cos(angle));
      sin.push_back(scaling * std::sin(angle));
    }
  return {tensor_of(cos, shape, DType::kF32), tensor_of(sin, shape, DType::kF32)};
}

struct Options {
  int64_t tokens = 5, heads = 4, kv_heads = 2, dim = 16;
  bool norm = false;
  std::vector<int32_t> positions = {};  // empty: from 17; with sections time's, then height's, then width's
  double scaling = 1;
  Role role = Role::kParameter;
  float eps = 1e-3f;
  int64_t unrotated = 0;
  Rotary::Form form = {};
  int64_t half() const { return (dim - unrotated) / 2; }
  int64_t all() const { return heads + 2 * kv_heads; }
  int64_t width() const { return all() * dim; }
};

// As the files' mrope_section is defined: lists of pairs, put together for each position.
inline int64_t position_of(const Options& o, int64_t token, int64_t pair) {
  const ops::RotarySections& sections = o.form.sections;
  if (!sections.exist()) return o.positions[token];
  std::vector<int64_t> positions(o.half(), 0);
  if (sections.interleaved)
    for (const int64_t which : {1, 2})
      for (int64_t n = 0; n < sections.pairs[which]; ++n) positions[which + 3 * n] = which;
  else
    for (int64_t which = 0, at = 0; which < 3; ++which)
      for (int64_t n = 0; n < sections.pairs[which]; ++n) positions[at++] = which;
  return o.positions[positions[pair] * o.tokens + token];
}

// inputs: qkv and, for the norm, the weights of q and k. All heads of a token in their order.
inline Doubles reference(const Options& o, const Tables& tables, const std::vector<Doubles>& inputs) {
  const Doubles& x = inputs[0];
  const int64_t half = o.half();
  Doubles y = x;
  for (int64_t t = 0; t < o.tokens; ++t)
    for (int64_t h = 0; h < o.heads + o.kv_heads; ++h) {
      const int64_t start = (t * o.all() + h) * o.dim;
      Doubles n(x.begin() + start, x.begin() + start + o.dim);
      if (o.norm) {
        double sum = 0;
        for (const double value : n) sum += value * value;
        const double rms = std::sqrt(sum / static_cast<double>(o.dim) + o.eps);
        for (int64_t i = 0; i < o.dim; ++i) n[i] *= (o.form.offset + inputs[h < o.heads ? 1 : 2][i]) / rms;
      }
      std::copy(n.begin(), n.end(), y.begin() + start);
      for (int64_t i = 0; i < half; ++i) {
        const int64_t at = position_of(o, t, i) * half + i, low = o.form.interleaved ? 2 * i : i,
                      high = o.form.interleaved ? 2 * i + 1 : i + half;
        const double c = tables.cos.data<float>()[at], s = tables.sin.data<float>()[at];
        y[start + low] = n[low] * c - n[high] * s;
        y[start + high] = n[high] * c + n[low] * s;
      }
    }
  return y;
}

// The heads side by side again, [tokens, width]: their gradients reach the op as strided views.
inline Var join(Tape& tape, const RotatedHeads& heads) {
  const auto flat = [&](const Var& x) {
    return primitives::reshape(tape, x, {x.shape()[0], x.shape()[1] * x.shape()[2]});
  };
  const Var qk = primitives::concat_last(tape, flat(heads.q), flat(heads.k));
  return primitives::concat_last(tape, qk, flat(heads.v));
}

inline std::vector<int32_t> counting(int64_t count, int32_t first = 0) {
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < count; ++i) positions.push_back(first + static_cast<int32_t>(i));
  return positions;
}

// [tokens], or [3, tokens] of rows that lie apart, as parts of a pass have them.
inline Tensor positions_tensor(const Options& o) {
  if (!o.form.sections.exist()) return ints(o.positions);
  const Tensor apart = Tensor::zeros({3, o.tokens + 2}, DType::kI32);
  for (int64_t i = 0; i < 3 * o.tokens; ++i)
    apart.data<int32_t>()[i / o.tokens * (o.tokens + 2) + 1 + i % o.tokens] = o.positions[i];
  return apart.narrow(1, 1, o.tokens);
}

inline void check(Options o) {
  if (o.positions.empty()) o.positions = counting(o.tokens, 17);
  const Tables both = tables(600, o.half(), o.scaling);
  const Shape shape{o.tokens, o.width()};
  Case c;
  c.name =
      fmt::format("{} tokens of {} + 2 x {} heads of {}, {} unrotated{}{}", o.tokens, o.heads, o.kv_heads,
                  o.dim, o.unrotated, o.norm ? ", normed" : "", o.form.interleaved ? ", interleaved" : "");
  c.inputs = {{"qkv", shape, normal(1, shape)}};
  if (o.norm)
    for (const uint64_t seed : {2, 3})
      c.inputs.push_back({seed == 2 ? "q_weight" : "k_weight",
                          {o.dim},
                          normal(seed, {o.dim}, 0.3, 1 - o.form.offset),
                          o.role});
  c.reference = [=](const std::vector<Doubles>& inputs) { return reference(o, both, inputs); };
  c.run = [=](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    const RotatedHeads heads = rotary(tape, ops, v[0], o.norm ? v[1] : Var{}, o.norm ? v[2] : Var{},
                                      {.heads = o.heads,
                                       .kv_heads = o.kv_heads,
                                       .eps = o.eps,
                                       .positions = on_device_of(v[0], positions_tensor(o)),
                                       .cos = on_device_of(v[0], both.cos),
                                       .sin = on_device_of(v[0], both.sin),
                                       .form = o.form});
    return Result{join(tape, heads), {}};
  };
  c.terms = std::max(o.dim, o.norm ? o.tokens * o.heads : 1);
  check_every_kernel<Rotary>(
      c, {.head_dim = o.dim, .qk_norm = o.norm, .unrotated = o.unrotated, .form = o.form});
}

inline Tensor zeros(const Shape& shape) { return Tensor::zeros(shape, DType::kF32); }

// An op that a change makes wrong.
inline void refuses(const std::function<void(Rotary&)>& change, std::string_view message) {
  const Tables good = tables(10, 4);
  Rotary op{.qkv = zeros({2, 40}),
            .heads = 3,
            .kv_heads = 1,
            .positions = ints({0, 9}),
            .cos = good.cos,
            .sin = good.sin};
  change(op);
  Tape tape;
  expect_error(
      [&] {
        rotary(tape, bind_kernel<Rotary>("eager", {}), tape.constant(op.qkv), tape.constant(op.q_weight),
               tape.constant(op.k_weight), op);
      },
      fmt::format("[rotary_pos_emb] {}", message));
}

}  // namespace temper::ops::rotary_testing
