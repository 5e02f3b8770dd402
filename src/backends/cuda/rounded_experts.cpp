#include "ops/rounded_experts/rounded_experts.h"

#include "backends/cuda/cuda.h"
#include "backends/cuda/expert_products.h"
#include "backends/gpu/expert_rows.h"
#include "backends/gpu/rounded_rows.h"

namespace temper::backends {
namespace {

using ops::MoeExperts;
using ops::RoundedExperts;

// Of the plan's rows.
Tensor make_rows(const MoeExperts& of, int64_t columns, MemoryTag tag = MemoryTag::kWorkspace) {
  return Tensor::empty({of.ids.numel(), columns}, of.x.dtype(), tag, of.x.device());
}

RoundedExperts::Output forward(const RoundedExperts& op, bool want_saved) {
  const MoeExperts& of = op.of;
  const ExpertPlan plan = plan_experts(of.ids, of.experts);
  RoundedExperts::Output out;
  out.y = ops::empty_like(of.x, of.x.shape());
  const Tensor gate_up =
      make_rows(of, 2 * of.width(), want_saved ? MemoryTag::kActivations : MemoryTag::kWorkspace);
  if (want_saved) {
    out.gate_up = gate_up;
    out.places = plan.memory;
  }
  const Tensor tiles = row_tiles(plan);
  multiply_rows(plan, tiles, {gather_rounded({plan, op.in, of.ids}, of.x), false}, of.gate_up, true, gate_up);
  const Tensor inner = make_rows(of, of.width()), rows = make_rows(of, of.hidden());
  rounded_swiglu({plan, op.inner, of.ids}, gate_up, inner);
  multiply_rows(plan, tiles, {inner, false}, of.down, true, rows);
  sum_choices(plan, rows, out.y, of.weights);
  return out;
}

MoeExperts::Grads backward(const RoundedExperts& op, const RoundedExperts::Output& saved, const Tensor& dy,
                           MoeExperts::Wanted wanted, const GradTarget& gate_up, const GradTarget& down) {
  const MoeExperts& of = op.of;
  const ExpertPlan plan{saved.places, of.ids.numel(), of.experts};
  const RoundedRows in{plan, op.in, of.ids}, inner{plan, op.inner, of.ids};
  MoeExperts::Grads grads;
  if (wanted.weights) grads.weights = ops::empty_like(of.weights, of.weights.shape());
  if (wanted.x) grads.x = ops::empty_like(of.x, of.x.shape());
  const Tensor tiles = row_tiles(plan), dgate_up = make_rows(of, 2 * of.width());
  {
    const Tensor rows = make_rows(of, of.width());  // the gradient of what down reads, then that itself
    multiply_rows(plan, tiles, {dy, true}, of.down, false, rows);
    rounded_swiglu_backward(inner, saved.gate_up, of.weights, rows,
                            {dgate_up, down.wanted() ? rows : Tensor(), grads.weights});
    if (down.wanted()) add_expert_gradient(plan, all_columns(dy, true), all_columns(rows, false), down);
  }
  if (gate_up.wanted())
    add_expert_gradient(plan, all_columns(dgate_up, false), all_columns(gather_rounded(in, of.x), false),
                        gate_up);
  if (wanted.x) {
    const Tensor rows = make_rows(of, of.hidden());
    multiply_rows(plan, tiles, {dgate_up, false}, of.gate_up, false, rows);
    sum_unclipped(in, rows, of.x, grads.x);
  }
  return grads;
}

ops::Refusal accepts(const RoundedExperts::Signature& s, const HardwareFacts& facts) {
  if (const ops::Refusal refusal = refuse_rounding(s)) return refusal;
  return cuda_moe_experts_kernel().accepts({s.dtype, s.hidden, s.width, s.experts, s.top_k}, facts);
}

}  // namespace

ops::Kernel<RoundedExperts> cuda_rounded_experts_kernel() {
  return {.hardware = hardware::kGpu,
          .accepts = accepts,
          .forward = forward,
          .backward = backward,
          .batch_invariant = true,
          .repeats = true,
          .outline = {forward, backward}};
}

}  // namespace temper::backends
