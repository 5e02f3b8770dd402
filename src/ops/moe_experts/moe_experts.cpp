#include "ops/moe_experts/moe_experts.h"

#include <algorithm>

#include "base/trace.h"
#include "ops/checks.h"
#include "ops/moe_experts/compose.h"
#include "ops/op_info.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

Var compose(Tape& tape, const Var& x, const Tensor& ids, const Var& weights, const Var& gate_up,
            const Var& down, int64_t experts) {
  const auto by = [&](const Var& matrices) {
    return [&](int64_t expert, const Var& rows) {
      return p::matmul(tape, rows, matrix_of_expert(tape, matrices, expert, experts), {.transpose_b = true});
    };
  };
  return compose_experts(tape, x, ids, weights, experts, by(gate_up), by(down));
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

// Of each of the two products, with those of its gradients.
trace::OpWork work(const MoeExperts& op) {
  const auto rows = static_cast<double>(op.tokens() * op.top_k());
  const double flops = 6 * rows * static_cast<double>(op.hidden() * op.width());
  const double bytes = static_cast<double>(op.gate_up.bytes() + op.down.bytes()) +
                       rows * static_cast<double>((2 * op.hidden() + 3 * op.width()) * size_of(op.x.dtype()));
  return {{flops, bytes}, {2 * flops, 2 * bytes}};
}

}  // namespace

Var moe_experts(Tape& tape, Bound<MoeExperts> bound, const Var& x, const Tensor& ids, const Var& weights,
                const p::Matrix& gate_up, const p::Matrix& down) {
  const int64_t experts = check_experts(MoeExperts::kName, x, ids, weights, gate_up, down);
  const auto& kernel = *bound;
  const trace::Span span(MoeExperts::kName, [&] {
    return work({x.value, ids, weights.value, gate_up.value.value, {}, down.value.value, {}, experts});
  });
  if (kernel.compose != nullptr)
    return kernel.compose(tape, x, ids, weights, gate_up.widened(), down.widened(), experts);
  MoeExperts op{x.value, ids, weights.value, {}, {}, {}, {}, experts};
  set_matrix(gate_up, x.value, kernel.traits.reads_codes, op.gate_up, op.gate_up_scales);
  set_matrix(down, x.value, kernel.traits.reads_codes, op.down, op.down_scales);
  const Var &matrix_in = gate_up.value, &matrix_out = down.value;
  const bool backward = tape.recording() && (x.requires_grad() || weights.requires_grad() ||
                                             matrix_in.requires_grad() || matrix_out.requires_grad());
  MoeExperts::Output out = kernel.forward(op, backward);
  const Tensor y = std::exchange(out.y, {});
  // Nothing is kept that can be made again.
  op.x = op.gate_up = op.down = op.gate_up_scales = op.down_scales = {};
  return tape.record(y, {&x, &weights, &matrix_in, &matrix_out},
                     [op, out, x_saved = x.saved(), in_saved = matrix_in.saved(),
                      out_saved = matrix_out.saved(), x_slot = x.slot, weights_slot = weights.slot,
                      in_slot = matrix_in.slot, out_slot = matrix_out.slot, &kernel](const Tensor& dy) {
                       MoeExperts whole = op;
                       whole.x = x_saved.get();
                       whole.gate_up = in_saved.get();
                       whole.down = out_saved.get();
                       const auto target = [](const auto& slot, const Tensor& value) {
                         return slot ? slot->target(value) : GradTarget{};
                       };
                       const MoeExperts::Grads grads = kernel.backward(
                           whole, out, dy.contiguous(), {x_slot != nullptr, weights_slot != nullptr},
                           target(in_slot, whole.gate_up), target(out_slot, whole.down));
                       if (x_slot) x_slot->add(grads.x);
                       if (weights_slot) weights_slot->add(grads.weights);
                     });
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
  return grads;
}

}  // namespace

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
