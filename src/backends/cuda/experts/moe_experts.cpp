#include "ops/moe_experts/moe_experts.h"

#include <fmt/core.h>

#include "backends/cuda/experts/expert_products.h"
#include "backends/gpu/expert_rows.h"

namespace temper::backends {
namespace {

using ops::MoeExperts;

MoeExperts::Output forward(const MoeExperts& op, bool want_saved) {
  const ExpertPlan plan = plan_experts(op.ids, op.experts);
  MoeExperts::Output out;
  out.y = ops::empty_like(op.x, op.x.shape());
  const Tensor gate_up =
      rows_of_plan(plan, op.x, 2 * op.width(), want_saved ? MemoryTag::kActivations : MemoryTag::kWorkspace);
  if (want_saved) {
    out.gate_up = gate_up;
    out.places = plan.memory;
  }
  const Tensor tiles = row_tiles(plan), inner = rows_of_plan(plan, op.x, op.width()),
               rows = rows_of_plan(plan, op.x, op.hidden());
  multiply_rows(plan, tiles, {op.x, true}, op.gate_up, true, gate_up);
  weighted_swiglu(plan, gate_up, op.weights, inner);
  multiply_rows(plan, tiles, {inner, false}, op.down, true, rows);
  sum_choices(plan, rows, out.y);
  return out;
}

MoeExperts::Grads backward(const MoeExperts& op, const MoeExperts::Output& saved, const Tensor& dy,
                           MoeExperts::Wanted wanted, const GradTarget& gate_up, const GradTarget& down) {
  const ExpertPlan plan{saved.places, op.ids.numel(), op.experts};
  MoeExperts::Grads grads = empty_gradients(op, wanted.x, wanted.weights);
  const Tensor tiles = row_tiles(plan), dgate_up = rows_of_plan(plan, op.x, 2 * op.width());
  {
    const Tensor inner = rows_of_plan(plan, op.x, op.width());  // its gradient, then itself
    multiply_rows(plan, tiles, {dy, true}, op.down, false, inner);
    weighted_swiglu_backward(plan, saved.gate_up, op.weights, inner, dgate_up,
                             down.wanted() || wanted.matrices_later ? inner : Tensor(), grads.weights);
    add_expert_gradient(plan, all_columns(dy, true), all_columns(inner, false), down);
    if (wanted.matrices_later)
      grads.matrices = [plan, dy, inner, dgate_up, x = op.x](const GradTarget& to_gate_up,
                                                             const GradTarget& to_down) {
        add_expert_gradient(plan, all_columns(dy, true), all_columns(inner, false), to_down);
        add_expert_gradient(plan, all_columns(dgate_up, false), all_columns(x, true), to_gate_up);
      };
  }
  add_expert_gradient(plan, all_columns(dgate_up, false), all_columns(op.x, true), gate_up);
  if (wanted.x) {
    const Tensor rows = rows_of_plan(plan, op.x, op.hidden());
    multiply_rows(plan, tiles, {dgate_up, false}, op.gate_up, false, rows);
    sum_choices(plan, rows, grads.x);
  }
  return grads;
}

}  // namespace

ops::Refusal refuse_experts(const MoeExperts::Signature& s, const HardwareFacts&) {
  if (const ops::Refusal other = ops::refuse_other_forms(s)) return other;
  if (s.experts > kMostExperts)
    return fmt::format("is for at most {} experts, this has {}", kMostExperts, s.experts);
  return std::nullopt;
}

void register_cuda_moe_experts() {
  ops::kernels<MoeExperts>().add("cuda", expert_kernel<MoeExperts>(refuse_experts, forward, backward));
}

}  // namespace temper::backends
