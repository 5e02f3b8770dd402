#include "ops/rotary/rotary.h"

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/op_info.h"
#include "ops/op_listener.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

// x [tokens, heads, 2 half]; cos, sin [tokens, 1, half]; all float32.
Var rotate_pairs(Tape& tape, const Var& x, const Var& cos, const Var& sin, bool interleaved) {
  const int64_t tokens = x.shape()[0], heads = x.shape()[1], half = x.shape()[2] / 2;
  const auto part = [&](int64_t which) {
    if (!interleaved) return p::narrow(tape, x, 2, which * half, half);
    const Var pairs = p::reshape(tape, x, {tokens, heads, half, 2});
    return p::reshape(tape, p::narrow(tape, pairs, 3, which, 1), {tokens, heads, half});
  };
  const Var low = part(0), high = part(1);
  const Var new_low = p::sub(tape, p::mul(tape, low, cos), p::mul(tape, high, sin));
  const Var new_high = p::add(tape, p::mul(tape, high, cos), p::mul(tape, low, sin));
  if (!interleaved) return p::concat_last(tape, new_low, new_high);
  const auto column = [&](const Var& y) { return p::reshape(tape, y, {tokens, heads, half, 1}); };
  return p::reshape(tape, p::concat_last(tape, column(new_low), column(new_high)), x.shape());
}

// The beginning of each head, as far as the tables say.
Var rotate(Tape& tape, const Var& x, const Var& cos, const Var& sin, bool interleaved) {
  const int64_t rotated = 2 * cos.shape()[2], rest = x.shape()[2] - rotated;
  if (rotated == 0) return x;
  if (rest == 0) return rotate_pairs(tape, x, cos, sin, interleaved);
  const Var turned = rotate_pairs(tape, p::narrow(tape, x, 2, 0, rotated), cos, sin, interleaved);
  return p::concat_last(tape, turned, p::narrow(tape, x, 2, rotated, rest));
}

// Which pairs a position turns, [1, half] float32: 1 there, and 0.
Tensor pairs_of(int position, const RotarySections& sections, const Tensor& like) {
  std::vector<float> turned;
  for (int64_t i = 0; i < like.dim(1); ++i) turned.push_back(sections.position_of(i) == position ? 1.f : 0.f);
  return Tensor::from<float>(turned, {1, like.dim(1)}).on(like.device(), MemoryTag::kActivations);
}

// The rows of a table, [tokens, half]. Of three positions each pair has one factor 1 and two 0: sums are
// exact.
Var rows_at(Tape& tape, const Tensor& table, const Rotary& op) {
  const auto at = [&](const Tensor& positions) {
    return p::gather_rows(tape, tape.constant(table), {positions, table.dim(0), false});
  };
  if (!op.has_three_positions()) return at(op.positions);
  Var sum;
  for (int i = 0; i < 3; ++i) {
    const Var own = p::mul(tape, at(op.positions.narrow(0, i, 1).reshape({op.positions.dim(1)})),
                           tape.constant(pairs_of(i, op.form.sections, table)));
    sum = i == 0 ? own : p::add(tape, sum, own);
  }
  return sum;
}

RotatedHeads compose(Tape& tape, const Var& qkv, const Var& q_weight, const Var& k_weight, const Rotary& op) {
  const int64_t tokens = qkv.shape()[0], all = op.heads + 2 * op.kv_heads, dim = qkv.shape()[1] / all;
  const auto at_tokens = [&](const Tensor& table) {
    return p::reshape(tape, rows_at(tape, table, op), {tokens, 1, table.dim(1)});
  };
  const Var cos = at_tokens(op.cos), sin = at_tokens(op.sin);
  const Var heads = p::reshape(tape, qkv, {tokens, all, dim});
  const auto rotated = [&](int64_t first, int64_t count, const Var& weight) {
    Var x = p::cast(tape, p::narrow(tape, heads, 1, first, count), DType::kF32);
    if (weight.value.defined()) {
      Var factors = p::cast(tape, weight, DType::kF32);
      if (op.form.offset != 0) factors = p::add_scalar(tape, factors, op.form.offset);
      x = p::normalize_last(tape, x, factors, op.eps);
    }
    return p::cast(tape, rotate(tape, x, cos, sin, op.form.interleaved), qkv.dtype());
  };
  return {rotated(0, op.heads, q_weight), rotated(op.heads, op.kv_heads, k_weight),
          p::narrow(tape, heads, 1, op.heads + op.kv_heads, op.kv_heads)};
}

void check_positions(const Rotary& op) {
  constexpr auto name = Rotary::kName;
  const int64_t tokens = op.qkv.dim(0);
  const RotarySections& sections = op.form.sections;
  if (!op.positions.defined() || op.positions.ndim() != 2 || !sections.exist()) {
    check_rotary_tables(name, op.positions, tokens, op.cos, op.sin);
  } else {
    check_shape(name, "positions", op.positions, {3, tokens});
    check_contiguous(name, "positions", op.positions, 1);
    for (int i = 0; i < 3; ++i)
      check_rotary_tables(name, op.positions.narrow(0, i, 1).reshape({tokens}), tokens, op.cos, op.sin);
  }
  if (sections.exist() && sections.sum() != op.cos.dim(1))
    fail("[rotary_pos_emb] sections are of {} + {} + {} pairs, needs {} in all, the columns of cos",
         sections.pairs[0], sections.pairs[1], sections.pairs[2], op.cos.dim(1));
}

// Returns head_dim.
int64_t check(const Rotary& op) {
  constexpr auto name = Rotary::kName;
  check_ndim(name, "qkv", op.qkv, 2);
  check_float(name, "qkv", op.qkv);
  check_contiguous(name, "qkv", op.qkv);
  const int64_t all = op.heads + 2 * op.kv_heads;
  if (op.heads < 1 || op.kv_heads < 1 || op.qkv.dim(1) % all != 0)
    fail("[rotary_pos_emb] qkv is {}, needs the width of {} + 2 x {} heads", to_string(op.qkv.shape()),
         op.heads, op.kv_heads);
  const int64_t dim = op.head_dim();
  if (dim % 2 != 0) fail("[rotary_pos_emb] head_dim is {}, needs an even number", dim);
  if (op.q_weight.defined() || op.k_weight.defined()) {
    for (const auto& [label, weight] : {std::pair{"q_weight", &op.q_weight}, {"k_weight", &op.k_weight}}) {
      check_shape(name, label, *weight, {dim});
      check_dtype(name, label, *weight, op.qkv.dtype());
      check_contiguous(name, label, *weight);
    }
    if (!(op.eps >= 0)) fail("[rotary_pos_emb] eps is {}, needs a value of 0 or more", op.eps);
  }
  check_positions(op);
  if (op.cos.dim(1) > dim / 2)
    fail("[rotary_pos_emb] cos is {}, needs at most {} columns", to_string(op.cos.shape()), dim / 2);
  return dim;
}

// q and k are made together: whichever is asked for first leaves the other here for its turn.
class RemadeHeads {
 public:
  RemadeHeads(Rotary op, const Kernel<Rotary>& kernel) : op_(std::move(op)), kernel_(kernel) {}
  Tensor take(Tensor Rotary::Output::*heads) {
    if (!(made_.*heads).defined()) {
      made_ = kernel_.forward(op_);
      made_.inv_rms = {};
    }
    return std::exchange(made_.*heads, Tensor());
  }

 private:
  Rotary op_;
  const Kernel<Rotary>& kernel_;
  Rotary::Output made_;
};

void set_remake(RotatedHeads& heads, const Rotary& op, const Kernel<Rotary>& kernel) {
  const auto remade = std::make_shared<RemadeHeads>(op, kernel);
  heads.q.remake = std::make_shared<Remake>([remade] { return remade->take(&Rotary::Output::q); });
  heads.k.remake = std::make_shared<Remake>([remade] { return remade->take(&Rotary::Output::k); });
}

// The gradient as kernels take it; one that did not arrive is zero.
Tensor grad_or_zeros(const Tensor& grad, const Shape& shape, const Tensor& like) {
  if (!grad.defined()) return Tensor::zeros(shape, like.dtype(), MemoryTag::kActivations, like.device());
  return grad.is_contiguous_from(2) ? grad : grad.contiguous();
}

}  // namespace

Refusal Rotary::refuses(const Traits& traits, const Signature& signature) {
  if (!signature.form.sections.exist() || traits.positions == 3) return std::nullopt;
  return "takes one position of a token, and this model has three (time, height, width)";
}

RotatedHeads rotary(Tape& tape, Bound<Rotary> bound, const Var& qkv, const Var& q_weight, const Var& k_weight,
                    Rotary op) {
  op.qkv = qkv.value;
  op.q_weight = q_weight.value;
  op.k_weight = k_weight.value;
  const int64_t dim = check(op), tokens = qkv.shape()[0], heads = op.heads, kv_heads = op.kv_heads;
  const trace::Span span("rotary", [&] {
    const double rotated = static_cast<double>(tokens * (heads + kv_heads) * dim * size_of(qkv.dtype()));
    const auto all = static_cast<double>(qkv.value.bytes());
    return trace::OpWork{{0, 2 * rotated}, {0, 2 * all + (op.q_weight.defined() ? rotated : 0)}};
  });
  const auto& kernel = *bound;
  if (kernel.compose != nullptr)
    return observed(Rotary::kName, q_weight.value, kernel.compose(tape, qkv, q_weight, k_weight, op),
                    {&RotatedHeads::q, &RotatedHeads::k, &RotatedHeads::v});
  const Rotary::Output out = kernel.forward(op);
  const Tensor v =
      qkv.value.reshape({tokens, heads + 2 * kv_heads, dim}).narrow(1, heads + kv_heads, kv_heads);
  auto vars = tape.record(
      {out.q, out.k, v}, {&qkv, &q_weight, &k_weight},
      [op, inv_rms = out.inv_rms, q_shape = out.q.shape(), kv_shape = v.shape(), qkv = qkv.slot,
       q_weight = q_weight.slot, k_weight = k_weight.slot, &kernel](const std::vector<Tensor>& grads) {
        const Tensor dqkv = kernel.backward(op, inv_rms, grad_or_zeros(grads[0], q_shape, op.qkv),
                                            grad_or_zeros(grads[1], kv_shape, op.qkv),
                                            grad_or_zeros(grads[2], kv_shape, op.qkv),
                                            q_weight ? q_weight->target(op.q_weight) : GradTarget{},
                                            k_weight ? k_weight->target(op.k_weight) : GradTarget{});
        if (qkv) qkv->add(dqkv);
      });
  RotatedHeads rotated{vars[0], vars[1], vars[2]};
  if (tape.rematerializes()) set_remake(rotated, op, kernel);
  return observed(Rotary::kName, q_weight.value, std::move(rotated),
                  {&RotatedHeads::q, &RotatedHeads::k, &RotatedHeads::v});
}

namespace {

Rotary::Output outline_forward(const Rotary& op) {
  const int64_t tokens = op.qkv.dim(0), dim = op.head_dim();
  return {
      empty_like(op.qkv, {tokens, op.heads, dim}), empty_like(op.qkv, {tokens, op.kv_heads, dim}),
      op.q_weight.defined() ? empty_like(op.qkv, {tokens, op.heads + op.kv_heads}, DType::kF32) : Tensor()};
}

Tensor outline_backward(const Rotary& op, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                        const GradTarget&, const GradTarget&) {
  return empty_like(op.qkv, op.qkv.shape());
}

}  // namespace

Probe rotary_probe;

void register_rotary() {
  register_op<Rotary>(compose, rotary_probe, {outline_forward, outline_backward},
                      {.cpu = {{{"simd", "simd"}}},
                       .gpu = {{{"cuda", "cuda"}, {"liger_kernel", "cuda"}}},
                       .npu = {{{"npu", "npu"}}}});
}

}  // namespace temper::ops
