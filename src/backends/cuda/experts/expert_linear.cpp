#include "ops/expert_linear/expert_linear.h"

#include "backends/cuda/experts/expert_products.h"
#include "backends/gpu/expert_rows.h"

namespace temper::backends {
namespace {

using ops::ExpertLinear;

// `transpose`: given weightᵀ, else given weight, in the order of the given rows.
Tensor product(const ExpertLinear& op, const ExpertPlan& plan, const Tensor& given, bool transpose) {
  const Tensor y = ops::empty_like(given, {op.rows(), transpose ? op.out() : op.in()});
  const Tensor rows = rows_of_plan(plan, y, y.dim(1));
  multiply_rows(plan, row_tiles(plan), {given, true}, op.weight, transpose, rows);
  sum_choices(plan, rows, y);
  return y;
}

Tensor forward(const ExpertLinear& op) { return product(op, plan_experts(op.ids, op.experts), op.x, true); }

Tensor backward(const ExpertLinear& op, const Tensor& dy, bool want_dx, const GradTarget& weight) {
  const ExpertPlan plan = plan_experts(op.ids, op.experts);
  const Tensor dx = want_dx ? product(op, plan, dy, false) : Tensor();
  if (weight.wanted()) add_expert_gradient(plan, all_columns(dy, true), all_columns(op.x, true), weight);
  return dx;
}

ops::Refusal accepts(const ExpertLinear::Signature& s, const HardwareFacts& facts) {
  return refuse_experts({.dtype = s.dtype, .hidden = s.in, .width = s.out, .experts = s.experts, .top_k = 1},
                        facts);
}

}  // namespace

void register_cuda_expert_linear() {
  ops::kernels<ExpertLinear>().add("cuda", expert_kernel<ExpertLinear>(accepts, forward, backward));
}

}  // namespace temper::backends
