#include "ops/rounded_experts/rounded_experts.h"

#include <algorithm>

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/moe_experts/compose.h"
#include "ops/op_info.h"
#include "ops/op_listener.h"
#include "primitives/amax.h"
#include "primitives/fake_quantized.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

// Rows of one expert.
Var rounded(Tape& tape, const Var& x, const RowRounding& how, int64_t expert) {
  if (!how.rounds || x.value.numel() == 0) return x;
  const int64_t rows = x.shape()[0], columns = x.shape()[1];
  const int64_t run = how.format.has_blocks() ? how.format.block : columns;
  Tensor amax;
  if (how.from == RowRounding::Amax::kRows) amax = p::amax_of(x.value, {rows, 1}).reshape({rows, 1, 1});
  if (how.from == RowRounding::Amax::kExperts)
    amax = how.amax.narrow(0, how.amax.numel() == 1 ? 0 : expert, 1).reshape({1, 1, 1});
  const Tensor wide = x.value.to(DType::kF32).contiguous().reshape({rows, columns / run, run});
  const Tensor y = p::fake_quantized(how.format, wide, amax).reshape(x.shape()).to(x.dtype());
  return p::straight_through(tape, x, y, how.clips() ? wide : Tensor(), amax);
}

Var swiglu_of(Tape& tape, const Var& gate_up) {
  const int64_t width = gate_up.shape()[1] / 2;
  const Var wide = p::cast(tape, gate_up, DType::kF32);
  const Var gate = p::narrow(tape, wide, 1, 0, width), up = p::narrow(tape, wide, 1, width, width);
  return p::cast(tape, p::mul(tape, p::mul(tape, gate, p::sigmoid(tape, gate)), up), gate_up.dtype());
}

Var compose(Tape& tape, const Var& x, const Var& weights, const Var& gate_up, const Var& down,
            const RoundedExperts& op) {
  const MoeExperts& of = op.of;
  const auto multiplied = [&](const Var& rows, const Var& matrices, int64_t e) {
    return p::matmul(tape, rows, matrix_of_expert(tape, matrices, e, of.experts), {.transpose_b = true});
  };
  const Var chosen = in_order_of_choices(tape, of.ids, of.experts, [&](int64_t e, const RowsOfExpert& own) {
    const Var entered = multiplied(rounded(tape, rows_of(tape, x, own.tokens), op.in, e), gate_up, e);
    return multiplied(rounded(tape, swiglu_of(tape, entered), op.inner, e), down, e);
  });
  const Var weighted =
      p::mul(tape, p::cast(tape, chosen, DType::kF32), p::reshape(tape, weights, {of.ids.numel(), 1}));
  return p::cast(tape, sum_of_choices(tape, weighted, of.top_k()), x.dtype());
}

void check_rounding(const char* name, const RowRounding& how, int64_t experts, int64_t columns) {
  constexpr auto op = RoundedExperts::kName;
  if (!how.rounds) return;
  using Amax = RowRounding::Amax;
  const quant::Format& format = how.format;
  if (format.needs_amax() == (how.from == Amax::kNone))
    fail("[{}] {} has {}, and its format {}", op, name, format.needs_amax() ? "no amax" : "an amax",
         format.needs_amax() ? "needs one" : "needs none");
  if (format.has_blocks() && how.from == Amax::kRows)
    fail("[{}] {} finds amax in rows, which formats with blocks do not take", op, name);
  if (format.has_blocks() && columns % format.block != 0)
    fail("[{}] {} has {} columns, needs blocks of {}", op, name, columns, format.block);
  if (how.from != Amax::kExperts) return;
  check_dtype(op, fmt::format("amax of {}", name), how.amax, DType::kF32);
  check_contiguous(op, fmt::format("amax of {}", name), how.amax);
  if (how.amax.numel() != 1 && how.amax.numel() != experts)
    fail("[{}] {} has {} amax, needs 1 or {}", op, name, how.amax.numel(), experts);
}

}  // namespace

Var rounded_experts(Tape& tape, Bound<RoundedExperts> bound, const Var& x, const Tensor& ids,
                    const Var& weights, const RoundedExpertWeights& given) {
  const auto& [gate_up, down, in, inner] = given;
  const int64_t experts = check_experts(RoundedExperts::kName, x, ids, weights, gate_up, down);
  check_rounding("in", in, experts, x.shape()[1]);
  check_rounding("inner", inner, experts, down.shape()[1]);
  RoundedExperts op{{x.value, ids, weights.value, gate_up.value, {}, down.value, {}, experts}, in, inner};
  const auto& kernel = *bound;
  const trace::Span span(RoundedExperts::kName, [&] { return expert_work(op.of, 3, 4); });
  if (kernel.compose != nullptr)
    return observed(RoundedExperts::kName, gate_up.value,
                    kernel.compose(tape, x, weights, gate_up, down, op));
  const std::vector<const Var*> inputs{&x, &weights, &gate_up, &down};
  const bool backward = tape.recording() && std::any_of(inputs.begin(), inputs.end(), [](const Var* input) {
                          return input->requires_grad();
                        });
  RoundedExperts::Output out = kernel.forward(op, backward);
  const Tensor y = std::exchange(out.y, {});
  // Nothing is kept that can be made again.
  op.of.x = op.of.gate_up = op.of.down = {};
  const Var result =
      tape.record(y, inputs,
                  [op, out, &kernel, x_saved = x.saved(), in_saved = gate_up.saved(),
                   out_saved = down.saved(), slots = ExpertSlots(inputs)](const Tensor& dy) {
                    RoundedExperts whole = op;
                    whole.of.x = x_saved.get();
                    whole.of.gate_up = in_saved.get();
                    whole.of.down = out_saved.get();
                    slots.add(kernel.backward(whole, out, dy.contiguous(), slots.wanted(),
                                              ExpertSlots::target(slots.gate_up, whole.of.gate_up),
                                              ExpertSlots::target(slots.down, whole.of.down)));
                  });
  return observed(RoundedExperts::kName, gate_up.value, result);
}

namespace {

RoundedExperts::Output outline_forward(const RoundedExperts& op, bool want_saved) {
  return outline<MoeExperts>().forward(op.of, want_saved);
}

MoeExperts::Grads outline_backward(const RoundedExperts& op, const RoundedExperts::Output& saved,
                                   const Tensor& dy, MoeExperts::Wanted wanted, const GradTarget& gate_up,
                                   const GradTarget& down) {
  return outline<MoeExperts>().backward(op.of, saved, dy, wanted, gate_up, down);
}

}  // namespace

Probe rounded_experts_probe;

void register_rounded_experts() {
  register_op<RoundedExperts>(compose, rounded_experts_probe, {outline_forward, outline_backward},
                              {.gpu = {{{"hopper", "hopper", "", 90}, {"cuda", "cuda"}}}});
}

}  // namespace temper::ops
