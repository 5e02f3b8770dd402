// Linears of experts by the products of moe_experts, for compute capability 9.0.
#include "ops/expert_linear/expert_linear.h"

#include "backends/gpu/expert_rows.h"
#include "backends/hopper/experts.h"

namespace temper::backends::hopper {
namespace {

using ops::ExpertLinear;

ops::MoeExperts of_rows(const ExpertLinear& op, const Tensor& given) {
  ops::MoeExperts rows;
  rows.x = given;
  rows.ids = op.ids;
  rows.experts = op.experts;
  return rows;
}

// `transpose`: sorted weightᵀ, else sorted weight, back in the order of the given rows.
Tensor product(const ExpertLinear& op, const Experts& experts, const Tensor& sorted, bool transpose) {
  const Tensor y = ops::empty_like(sorted, {op.rows(), transpose ? op.out() : op.in()});
  const Tensor rows = experts.rows_of(y.dim(1));
  experts.multiply(experts.items(), op.weight, transpose, sorted, rows);
  sum_choices(experts.plan(), rows, y);
  return y;
}

Tensor forward(const ExpertLinear& op) {
  const ops::MoeExperts rows = of_rows(op, op.x);
  const Experts experts(rows, plan_experts(op.ids, op.experts));
  return product(op, experts, gather_choices(experts.plan(), op.x), true);
}

Tensor backward(const ExpertLinear& op, const Tensor& dy, bool want_dx, const GradTarget& weight) {
  const ops::MoeExperts rows = of_rows(op, dy);
  const Experts experts(rows, plan_experts(op.ids, op.experts));
  const Tensor sorted = gather_choices(experts.plan(), dy);
  const Tensor dx = want_dx ? product(op, experts, sorted, false) : Tensor();
  experts.add_gradient(sorted, op.x, false, weight);
  return dx;
}

ops::Refusal accepts(const ExpertLinear::Signature& s, const HardwareFacts& facts) {
  if (s.in == 0 || s.out == 0)
    return "is for sizes that are multiples of 8, low-rank updates of experts may have any rank";
  return refuse_experts({.dtype = s.dtype, .hidden = s.in, .width = s.out, .experts = s.experts, .top_k = 1},
                        facts);
}

}  // namespace

void register_hopper_expert_linear() {
  ops::kernels<ExpertLinear>().add_before("cuda", "hopper",
                                          expert_kernel<ExpertLinear>(accepts, forward, backward));
}

}  // namespace temper::backends::hopper
