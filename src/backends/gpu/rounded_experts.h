#pragma once
#include "backends/gpu/expert_rows.h"
#include "backends/gpu/rounded_rows.h"

// The order of the steps of experts whose matrices read rounded rows, for any room's products.
namespace temper::backends {

// `Products` are those of an op's rows in the order of a plan, made of both:
//   multiply(matrices, transpose, rows, d): d = rows matrixᵀ or rows matrix, with each expert's matrix
//   multiply_tokens(…): the same of each row's token
//   gate_up_gradient(dgate_up, rows, target), down_gradient(dy, rows, target): of each expert's matrix, from
//     what it read; dy [tokens, hidden]
template <class Products>
class RoundedExpertsBy {
  using Op = ops::RoundedExperts;
  using MoeExperts = ops::MoeExperts;

 public:
  static Op::Output forward(const Op& op, bool want_saved) {
    const MoeExperts& of = op.of;
    const ExpertPlan plan = plan_experts(of.ids, of.experts);
    const Products products(of, plan);
    Op::Output out;
    out.y = ops::empty_like(of.x, of.x.shape());
    const Tensor gate_up = rows_of_plan(plan, of.x, 2 * of.width(),
                                        want_saved ? MemoryTag::kActivations : MemoryTag::kWorkspace);
    if (want_saved) {
      out.gate_up = gate_up;
      out.places = plan.memory;
    }
    products.multiply(of.gate_up, true, gather_rounded({plan, op.in, of.ids}, of.x), gate_up);
    const Tensor inner = rows_of_plan(plan, of.x, of.width()), rows = rows_of_plan(plan, of.x, of.hidden());
    rounded_swiglu({plan, op.inner, of.ids}, gate_up, inner);
    products.multiply(of.down, true, inner, rows);
    sum_choices(plan, rows, out.y, of.weights);
    return out;
  }

  static MoeExperts::Grads backward(const Op& op, const Op::Output& saved, const Tensor& dy,
                                    MoeExperts::Wanted wanted, const GradTarget& gate_up,
                                    const GradTarget& down) {
    const MoeExperts& of = op.of;
    const ExpertPlan plan{saved.places, of.ids.numel(), of.experts};
    const Products products(of, plan);
    const RoundedRows in{plan, op.in, of.ids}, inner{plan, op.inner, of.ids};
    MoeExperts::Grads grads = empty_gradients(of, wanted.x, wanted.weights);
    const Tensor dgate_up = rows_of_plan(plan, of.x, 2 * of.width());
    {
      const Tensor rows =
          rows_of_plan(plan, of.x, of.width());  // the gradient of what down reads, then that itself
      products.multiply_tokens(of.down, false, dy, rows);
      rounded_swiglu_backward(inner, saved.gate_up, of.weights, rows,
                              {dgate_up, down.wanted() ? rows : Tensor(), grads.weights});
      if (down.wanted()) products.down_gradient(dy, rows, down);
    }
    if (gate_up.wanted()) products.gate_up_gradient(dgate_up, gather_rounded(in, of.x), gate_up);
    if (wanted.x) {
      const Tensor rows = rows_of_plan(plan, of.x, of.hidden());
      products.multiply(of.gate_up, false, dgate_up, rows);
      sum_unclipped(in, rows, of.x, grads.x);
    }
    return grads;
  }

  // `kRefuse`: what the room's products do not take.
  template <ops::Refusal (*kRefuse)(const MoeExperts::Signature&, const HardwareFacts&)>
  static ops::Kernel<Op> kernel() {
    const auto accepts = [](const Op::Signature& s, const HardwareFacts& facts) {
      const ops::Refusal refusal = refuse_rounding(s);
      return refusal ? refusal : kRefuse({s.dtype, s.hidden, s.width, s.experts, s.top_k}, facts);
    };
    return expert_kernel<Op>(accepts, forward, backward);
  }
};

}  // namespace temper::backends
