// The experts of a mixture that read rounded rows, by the products of moe_experts, for compute
// capability 9.0.
#include "ops/rounded_experts/rounded_experts.h"

#include "backends/gpu/expert_rows.h"
#include "backends/gpu/rounded_rows.h"
#include "backends/hopper/experts.h"
#include "backends/hopper/hopper.h"

namespace temper::backends::hopper {
namespace {

using ops::MoeExperts;
using ops::RoundedExperts;

RoundedExperts::Output forward(const RoundedExperts& op, bool want_saved) {
  const MoeExperts& of = op.of;
  const Experts experts(of, plan_experts(of.ids, of.experts));
  RoundedExperts::Output out;
  out.y = ops::empty_like(of.x, of.x.shape());
  const Tensor gate_up =
      experts.rows_of(2 * of.width(), want_saved ? MemoryTag::kActivations : MemoryTag::kWorkspace);
  if (want_saved) {
    out.gate_up = gate_up;
    out.places = experts.plan().memory;
  }
  const Tensor items = experts.items();
  experts.multiply(items, of.gate_up, true, gather_rounded({experts.plan(), op.in, of.ids}, of.x), gate_up);
  const Tensor inner = experts.rows_of(of.width()), rows = experts.rows_of(of.hidden());
  rounded_swiglu({experts.plan(), op.inner, of.ids}, gate_up, inner);
  experts.multiply(items, of.down, true, inner, rows);
  sum_choices(experts.plan(), rows, out.y, of.weights);
  return out;
}

MoeExperts::Grads backward(const RoundedExperts& op, const RoundedExperts::Output& saved, const Tensor& dy,
                           MoeExperts::Wanted wanted, const GradTarget& gate_up, const GradTarget& down) {
  const MoeExperts& of = op.of;
  const Experts experts(of, {saved.places, of.ids.numel(), of.experts});
  const RoundedRows in{experts.plan(), op.in, of.ids}, inner{experts.plan(), op.inner, of.ids};
  MoeExperts::Grads grads;
  if (wanted.weights) grads.weights = ops::empty_like(of.weights, of.weights.shape());
  if (wanted.x) grads.x = ops::empty_like(of.x, of.x.shape());
  const Tensor items = experts.items(), dgate_up = experts.rows_of(2 * of.width());
  {
    const Tensor rows = experts.rows_of(of.width());  // the gradient of what down reads, then that itself
    experts.multiply(items, of.down, false, gather_choices(experts.plan(), dy), rows);
    rounded_swiglu_backward(inner, saved.gate_up, of.weights, rows,
                            {dgate_up, down.wanted() ? rows : Tensor(), grads.weights});
    experts.add_gradient(rows, dy, true, down);
  }
  if (gate_up.wanted())
    experts.add_gradient(dgate_up, gather_rounded(in, of.x), false, gate_up, Experts::Given::kRows);
  if (wanted.x) {
    const Tensor rows = experts.rows_of(of.hidden());
    experts.multiply(items, of.gate_up, false, dgate_up, rows);
    sum_unclipped(in, rows, of.x, grads.x);
  }
  return grads;
}

ops::Refusal accepts(const RoundedExperts::Signature& s, const HardwareFacts& facts) {
  if (const ops::Refusal refusal = refuse_rounding(s)) return refusal;
  return moe_experts_kernel().accepts({s.dtype, s.hidden, s.width, s.experts, s.top_k}, facts);
}

}  // namespace

ops::Kernel<RoundedExperts> rounded_experts_kernel() {
  return {.hardware = hardware::kGpu,
          .accepts = accepts,
          .forward = forward,
          .backward = backward,
          .batch_invariant = true,
          .repeats = true,
          .outline = {forward, backward}};
}

}  // namespace temper::backends::hopper
