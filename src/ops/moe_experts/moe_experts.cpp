#include "ops/moe_experts/moe_experts.h"

#include <algorithm>

#include "autograd/later_gradients.h"
#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/moe_experts/compose.h"
#include "ops/op_info.h"
#include "ops/op_listener.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

Var compose(Tape& tape, const Var& x, const Tensor& ids, const Var& weights, const ExpertWeights& of,
            int64_t experts) {
  const auto by = [&](const p::Matrix& given) {
    return [&, matrices = given.widened()](int64_t expert, const Var& rows) {
      return p::matmul(tape, rows, matrix_of_expert(tape, matrices, expert, experts), {.transpose_b = true});
    };
  };
  return compose_experts(tape, x, ids, weights, experts, {by(of.gate_up), by(of.down)}, of);
}

}  // namespace

int64_t check_experts(std::string_view op, const Var& x, const Tensor& ids, const Var& weights,
                      const p::Matrix& gate_up, const p::Matrix& down) {
  check_ndim(op, "x", x.value, 2);
  check_float(op, "x", x.value);
  check_contiguous(op, "x", x.value);
  check_ndim(op, "ids", ids, 2);
  check_dtype(op, "ids", ids, DType::kI32);
  check_shape(op, "ids", ids, {x.shape()[0], ids.dim(1)});
  check_contiguous(op, "ids", ids);
  check_shape(op, "weights", weights.value, ids.shape());
  check_dtype(op, "weights", weights.value, DType::kF32);
  check_contiguous(op, "weights", weights.value);
  check_weight(op, gate_up, x.dtype(), "gate_up");
  check_weight(op, down, x.dtype(), "down");
  if (down.shape()[0] % std::max<int64_t>(x.shape()[1], 1) != 0)
    fail("[{}] down is {}, needs {} rows for each expert", op, to_string(down.shape()), x.shape()[1]);
  const int64_t experts = down.shape()[0] / std::max<int64_t>(x.shape()[1], 1);
  if (experts < 1 || ids.dim(1) > experts)
    fail("[{}] top {} of {} experts, needs no more than there are", op, ids.dim(1), experts);
  const int64_t width = down.shape()[1];
  check_shape(op, "gate_up", gate_up.value.value, {experts * 2 * width, x.shape()[1]});
  check_shape(op, "down", down.value.value, {experts * x.shape()[1], width});
  for (const int32_t id : visible_ids(ids))
    if (id < 0 || id >= experts) fail("[{}] ids has expert {}, needs 0 to {}", op, id, experts - 1);
  return experts;
}

namespace {

void check_form(const ExpertWeights& form, const Var& x, int64_t experts, int64_t width) {
  constexpr auto op = MoeExperts::kName;
  const Tensor &in = form.gate_up_bias.value, &out = form.down_bias.value;
  if (in.defined() != out.defined())
    fail("[{}] has one of gate_up_bias and down_bias, needs both or none", op);
  if (form.gate.clamped && !(form.gate.limit > 0))
    fail("[{}] the gate's limit is {}, needs a positive one", op, form.gate.limit);
  if (!in.defined()) return;
  check_dtype(op, "gate_up_bias", in, x.dtype());
  check_shape(op, "gate_up_bias", in, {experts * 2 * width});
  check_contiguous(op, "gate_up_bias", in);
  check_dtype(op, "down_bias", out, x.dtype());
  check_shape(op, "down_bias", out, {experts * x.shape()[1]});
  check_contiguous(op, "down_bias", out);
}

// Where the gradients of both matrices may be left, as far as they are wanted.
LaterGradients* later_of(const ExpertSlots& slots) {
  for (const auto& slot : {slots.gate_up, slots.down})
    if (slot != nullptr && LaterGradients::of(slot) == nullptr) return nullptr;
  return slots.gate_up != nullptr || slots.down != nullptr ? LaterGradients::current() : nullptr;
}

void in_two_parts(const MoeExperts& op, const ExpertSlots& slots,
                  const std::function<MoeExperts::Grads(const MoeExperts::Wanted&, const GradTarget&,
                                                        const GradTarget&)>& backward,
                  LaterGradients& later) {
  MoeExperts::Wanted wanted = slots.wanted();
  wanted.matrices_later = true;
  MoeExperts::Grads grads = backward(wanted, {}, {});
  slots.add(grads);
  later.leave([add = std::move(grads.matrices), gate_up = slots.gate_up, down = slots.down, in = op.gate_up,
               out = op.down] { add(ExpertSlots::target(gate_up, in), ExpertSlots::target(down, out)); });
}

}  // namespace

Var moe_experts(Tape& tape, Bound<MoeExperts> bound, const Var& x, const Tensor& ids, const Var& weights,
                const ExpertWeights& of) {
  const p::Matrix &gate_up = of.gate_up, &down = of.down;
  const int64_t experts = check_experts(MoeExperts::kName, x, ids, weights, gate_up, down);
  check_form(of, x, experts, down.shape()[1]);
  const auto& kernel = *bound;
  const trace::Span span(MoeExperts::kName, [&] {
    return expert_work({x.value, ids, weights.value, gate_up.value.value, {}, down.value.value, {}, experts},
                       2, 3);
  });
  if (kernel.compose != nullptr)
    return observed(MoeExperts::kName, of.gate_up.value.value,
                    kernel.compose(tape, x, ids, weights, of, experts));
  MoeExperts op{x.value, ids, weights.value, {}, {}, {}, {}, experts};
  op.gate_up_bias = of.gate_up_bias.value;
  op.down_bias = of.down_bias.value;
  op.gate = of.gate;
  set_matrix(gate_up, x.value, kernel.traits.reads_codes, op.gate_up, op.gate_up_scales);
  set_matrix(down, x.value, kernel.traits.reads_codes, op.down, op.down_scales);
  const Var &matrix_in = gate_up.value, &matrix_out = down.value;
  const std::vector<const Var*> inputs{&x,          &weights,         &matrix_in,
                                       &matrix_out, &of.gate_up_bias, &of.down_bias};
  const bool backward = tape.recording() && std::any_of(inputs.begin(), inputs.end(), [](const Var* input) {
                          return input->requires_grad();
                        });
  MoeExperts::Output out = kernel.forward(op, backward);
  const Tensor y = std::exchange(out.y, {});
  // Nothing is kept that can be made again.
  op.x = op.gate_up = op.down = op.gate_up_scales = op.down_scales = {};
  const Var result =
      tape.record(y, inputs,
                  [op, out, x_saved = x.saved(), in_saved = matrix_in.saved(), out_saved = matrix_out.saved(),
                   slots = ExpertSlots(inputs), &kernel](const Tensor& dy) {
                    MoeExperts whole = op;
                    whole.x = x_saved.get();
                    whole.gate_up = in_saved.get();
                    whole.down = out_saved.get();
                    const auto backward = [&](const MoeExperts::Wanted& wanted, const GradTarget& gate_up,
                                              const GradTarget& down) {
                      return kernel.backward(whole, out, dy.contiguous(), wanted, gate_up, down);
                    };
                    if (auto* const later = later_of(slots))
                      return in_two_parts(whole, slots, backward, *later);
                    slots.add(backward(slots.wanted(), ExpertSlots::target(slots.gate_up, whole.gate_up),
                                       ExpertSlots::target(slots.down, whole.down)));
                  });
  return observed(MoeExperts::kName, of.gate_up.value.value, result);
}

namespace {

MoeExperts::Output outline_forward(const MoeExperts& op, bool want_saved) {
  MoeExperts::Output out{empty_like(op.x, op.x.shape()), {}, {}};
  const int64_t rows = op.tokens() * op.top_k();
  if (want_saved) {
    out.gate_up = empty_like(op.x, {rows, 2 * op.width()});
    out.places = empty_like(op.x, {2 * rows + op.experts + 1}, DType::kI32);
  }
  return out;
}

MoeExperts::Grads outline_backward(const MoeExperts& op, const MoeExperts::Output&, const Tensor&,
                                   MoeExperts::Wanted wanted, const GradTarget&, const GradTarget&) {
  MoeExperts::Grads grads;
  if (wanted.x) grads.x = empty_like(op.x, op.x.shape());
  if (wanted.weights) grads.weights = empty_like(op.weights, op.weights.shape());
  if (wanted.biases) {
    grads.gate_up_bias = empty_like(op.gate_up_bias, op.gate_up_bias.shape(), DType::kF32);
    grads.down_bias = empty_like(op.down_bias, op.down_bias.shape(), DType::kF32);
  }
  return grads;
}

}  // namespace

Refusal refuse_other_forms(const MoeExperts::Signature& s) {
  if (s.biases) return "has no biases of experts";
  if (s.clamped) return "has no clamped gate";
  return std::nullopt;
}

Probe moe_experts_probe;

void register_moe_experts() {
  register_op<MoeExperts>(compose, moe_experts_probe, {outline_forward, outline_backward},
                          {.cpu = {{{"onednn", "onednn"}}},
                           .gpu = {{{"hopper", "hopper", "", 90},
                                    {"cuda", "cuda"},
                                    {"fused_triton", "cuda"},
                                    {"fused_quack", "hopper", "", 90},
                                    {"fused", "cuda", "", 0, "fused_triton or fused_quack"}}},
                           .npu = {{{"fused_npu", "npu"}}}});
}

}  // namespace temper::ops
