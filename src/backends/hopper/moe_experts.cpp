// The experts of a mixture by products of our own for compute capability 9.0.
#include <fmt/core.h>

#include "backends/gpu/expert_rows.h"
#include "backends/hopper/expert_products.h"
#include "backends/hopper/experts.h"
#include "backends/hopper/few_choices.h"
#include "ops/moe_experts/moe_experts.h"

namespace temper::backends::hopper {
namespace {

using ops::MoeExperts;

MoeExperts::Output forward(const MoeExperts& op, bool want_saved) {
  MoeExperts::Output out;
  out.y = ops::empty_like(op.x, op.x.shape());
  if (!want_saved && !only_counts(out.y.device()) && are_few_choices(op)) {
    few_choices(op, out.y);
    return out;
  }
  const Experts experts(op, plan_experts(op.ids, op.experts));
  if (want_saved) {
    out.gate_up = experts.rows_of(2 * op.width(), MemoryTag::kActivations);
    out.places = experts.plan().memory;
  }
  const Tensor items = experts.items();
  const Tensor rows = experts.rows_of(op.hidden());
  {
    const Tensor inner = experts.rows_of(op.width());
    experts.multiply_gate_up(items, out.gate_up, inner);
    experts.multiply(items, op.down, true, inner, rows);
  }
  sum_choices(experts.plan(), rows, out.y);
  return out;
}

MoeExperts::Grads backward(const MoeExperts& op, const MoeExperts::Output& saved, const Tensor& dy,
                           MoeExperts::Wanted wanted, const GradTarget& gate_up, const GradTarget& down) {
  const Experts experts(op, {saved.places, op.ids.numel(), op.experts});
  MoeExperts::Grads grads = empty_gradients(op, wanted.x, wanted.weights);
  const Tensor items = experts.items();
  const Tensor dgate_up = experts.rows_of(2 * op.width());
  {
    const Tensor inner = down.wanted() || wanted.matrices_later ? experts.rows_of(op.width()) : Tensor();
    const Tensor dots = wanted.weights
                            ? experts.rows_of(parts_of_dots(op.width()), MemoryTag::kWorkspace, DType::kF32)
                            : Tensor();
    experts.differentiate_gate(items, dy, saved.gate_up, dgate_up, inner, dots);
    if (wanted.weights) sum_parts(experts.plan(), dots, grads.weights);
    experts.add_gradient(inner, dy, true, down);
    if (wanted.matrices_later)
      grads.matrices = [op, places = saved.places, dy, inner, dgate_up](const GradTarget& to_gate_up,
                                                                        const GradTarget& to_down) {
        const Experts again(op, {places, op.ids.numel(), op.experts});
        again.add_gradient(inner, dy, true, to_down);
        again.add_gradient(dgate_up, op.x, false, to_gate_up);
      };
  }
  experts.add_gradient(dgate_up, op.x, false, gate_up);
  if (wanted.x) {
    const Tensor rows = experts.rows_of(op.hidden());
    experts.multiply(items, op.gate_up, false, dgate_up, rows);
    sum_choices(experts.plan(), rows, grads.x);
  }
  return grads;
}

}  // namespace

ops::Refusal refuse_experts(const MoeExperts::Signature& s, const HardwareFacts& facts) {
  if (const ops::Refusal other = ops::refuse_other_forms(s)) return other;
  if (facts.compute_capability != 90 || s.dtype != DType::kBF16)
    return fmt::format("is for bfloat16 at compute capability 9.0, this is {} at {}.{}", to_string(s.dtype),
                       facts.compute_capability / 10, facts.compute_capability % 10);
  if (s.hidden % 8 != 0 || s.width % 8 != 0)
    return fmt::format("is for sizes that are multiples of 8, this has {} and experts of {}", s.hidden,
                       s.width);
  if (s.experts > kMostExperts)
    return fmt::format("is for at most {} experts, this has {}", kMostExperts, s.experts);
  return std::nullopt;
}

void register_hopper_moe_experts() {
  ops::kernels<MoeExperts>().add_before("cuda", "hopper",
                                        expert_kernel<MoeExperts>(refuse_experts, forward, backward));
}

}  // namespace temper::backends::hopper
