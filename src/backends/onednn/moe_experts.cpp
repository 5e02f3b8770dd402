// Grouped products (expert_products.h) of the experts of a mixture.
#include "backends/floats.h"
#include "backends/onednn/expert_products.h"
#include "backends/onednn/onednn.h"
#include "backends/onednn/packed_tile.h"

namespace temper::backends {
namespace {

using ops::MoeExperts;

MoeExperts::Output forward(const MoeExperts& op, bool want_saved) {
  const int64_t count = op.tokens() * op.top_k();
  MoeExperts::Output out{ops::empty_like(op.x, op.x.shape()), {}, {}};
  const Shape wide{count, 2 * op.width()};
  const Tensor gate_up = want_saved ? ops::empty_like(op.x, wide) : expert_workspace(op, wide);
  if (want_saved) out.gate_up = gate_up;
  const auto none = [](const ChoicesByExpert&, const Tensor&) { return ExpertTerms{}; };
  run_experts(op, none, none, gate_up, out.y);
  return out;
}

void add_matrix_gradients(const MoeExperts& op, const ChoicesByExpert& rows, const Tensor& dy,
                          const ReturnedRows& returned, const GradTarget& gate_up, const GradTarget& down) {
  if (gate_up.wanted())
    for_gathered_experts(op, rows, op.x, [&](ExpertRange experts, const RowsOfExperts& x) {
      add_expert_gradients(rows, experts, {returned.dgate_up}, x, gate_up);
    });
  if (down.wanted())
    for_gathered_experts(op, rows, dy, [&](ExpertRange experts, const RowsOfExperts& grads) {
      add_expert_gradients(rows, experts, grads, {returned.y}, down);
    });
}

MoeExperts::Grads backward(const MoeExperts& op, const MoeExperts::Output& saved, const Tensor& dy,
                           MoeExperts::Wanted wanted, const GradTarget& gate_up, const GradTarget& down) {
  MoeExperts::Grads grads;
  if (wanted.x) grads.x = ops::empty_like(op.x, op.x.shape());
  if (wanted.weights) grads.weights = ops::empty_like(op.x, op.ids.shape(), DType::kF32);
  const ReturnedRows returned = empty_returned_rows(op);
  const int64_t count = op.tokens() * op.top_k();
  if (only_counts(op.x.device())) {
    const Tensor results = expert_workspace(op, {wanted.x ? count : op.tokens(), op.hidden()});
    take_for_expert_tasks(op);
    return grads;
  }
  const ChoicesByExpert rows(op.ids, op.experts);
  leave_experts(op, rows, {}, saved.gate_up, dy, returned);
  if (wanted.weights) sum_dots(rows, returned.dots, grads.weights);
  if (wanted.x) {
    const Tensor results = expert_workspace(op, {count, op.hidden()});
    multiply_by_experts(rows, returned.dgate_up, {op.gate_up, {}, 2 * op.width()}, false, {}, results);
    rows.sum(results, grads.x);
  }
  add_matrix_gradients(op, rows, dy, returned, gate_up, down);
  return grads;
}

bool reads_codes(const Tensor&, const Tensor&) { return true; }

}  // namespace

ops::Kernel<MoeExperts> moe_experts_kernel() {
  return {.accepts = refuse_float16,
          .forward = forward,
          .backward = backward,
          // Products of our own add up each row in one order; those of a library promise nothing.
          .batch_invariant = has_packed_tile(DType::kF32) &&
                             (bf16_path() == Bf16Path::kWiden || has_packed_tile(DType::kBF16)),
          .traits = {.reads_codes = reads_codes},
          .outline = {forward, backward}};
}

}  // namespace temper::backends
