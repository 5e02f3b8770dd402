#pragma once
#include "backends/gpu/expert_plan.h"
#include "ops/moe_experts/moe_experts.h"

// What is computed on the rows of experts (expert_plan.h) apart from matrix multiplications; each sum has a
// fixed order.
namespace temper::backends {

// y[t] = Σ_j rows[place of choice j of token t], j ascending, in float32; each times the choice's weight
// [tokens, top_k] float32, where they are defined. y [tokens, columns] and rows [plan's rows, columns] have
// one dtype.
void sum_choices(const ExpertPlan& plan, const Tensor& rows, const Tensor& y, const Tensor& weights = {});

// [plan's rows, columns] of the dtype and the device of `like`, without values.
Tensor rows_of_plan(const ExpertPlan& plan, const Tensor& like, int64_t columns,
                    MemoryTag tag = MemoryTag::kWorkspace);
// For the gradients that are wanted, without values.
ops::MoeExperts::Grads empty_gradients(const ops::MoeExperts& op, bool x, bool weights);

// Of x [tokens, columns] each row's token, in the order of the plan's rows: [plan's rows, columns].
Tensor gather_choices(const ExpertPlan& plan, const Tensor& x);

// sums [tokens, top_k] float32, of each choice: the sum of its row's parts [plan's rows, parts] float32.
void sum_parts(const ExpertPlan& plan, const Tensor& parts, const Tensor& sums);

// A kernel of experts: a row's results are the same whatever rows are next to it, and its work is its
// outline.
template <class Op>
ops::Kernel<Op> expert_kernel(decltype(ops::Kernel<Op>::accepts) accepts, typename Op::Forward* forward,
                              typename Op::Backward* backward) {
  return {.hardware = hardware::kGpu,
          .accepts = accepts,
          .forward = forward,
          .backward = backward,
          .batch_invariant = true,
          .repeats = true,
          .outline = {forward, backward}};
}

// Itself, or a copy that begins where chunks of 16 bytes can.
Tensor with_whole_chunks(const Tensor& tensor);

}  // namespace temper::backends
