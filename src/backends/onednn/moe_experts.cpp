// Grouped products (expert_products.h) of the experts of a mixture.
#include "ops/moe_experts/moe_experts.h"
#include "backends/floats.h"
#include "backends/onednn/expert_products.h"
#include "backends/onednn/onednn.h"
#include "backends/onednn/tiles/packed_tile.h"
#include "backends/onednn/tiles/scores.h"
#include "base/threads/threads.h"

namespace temper::backends {
namespace {

using ops::MoeExperts;

Tensor by_expert(const MoeExperts& op, const Tensor& bias) {
  return bias.reshape({op.experts, bias.numel() / op.experts});
}

ExpertTerms bias_terms(const MoeExperts& op, const Tensor& bias, const std::vector<float>* factors) {
  ExpertTerms terms;
  if (!bias.defined()) return terms;
  terms.bias = by_expert(op, bias).to(DType::kF32, MemoryTag::kWorkspace);
  terms.factors = factors;
  return terms;
}

MoeExperts::Output forward(const MoeExperts& op, bool want_saved) {
  const int64_t count = op.tokens() * op.top_k();
  MoeExperts::Output out{ops::empty_like(op.x, op.x.shape()), {}, {}};
  const Shape wide{count, 2 * op.width()};
  const Tensor gate_up = want_saved ? ops::empty_like(op.x, wide) : expert_workspace(op, wide);
  if (want_saved) out.gate_up = gate_up;
  std::vector<float> weights;
  run_experts(
      op, [&](const ChoicesByExpert&, const Tensor&) { return bias_terms(op, op.gate_up_bias, nullptr); },
      [&](const ChoicesByExpert& rows, const Tensor&) {
        weights = weights_of(rows, op.weights);
        return bias_terms(op, op.down_bias, &weights);
      },
      gate_up, out.y);
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

// What the bias of `down` adds to the weights' gradients: its product with dy.
void add_bias_dots(const MoeExperts& op, const Tensor& dy, const Tensor& dweights) {
  if (!op.down_bias.defined()) return;
  const Tensor bias = by_expert(op, op.down_bias);
  parallel_for(op.tokens(), [&](int64_t token) {
    for (int64_t choice = token * op.top_k(); choice < (token + 1) * op.top_k(); ++choice) {
      float dot = 0;
      dot_pairs(block_of(dy, token, 0), block_of(bias, op.ids.data<int32_t>()[choice], 0), 1, op.hidden(),
                &dot);
      dweights.data<float>()[choice] += dot;
    }
  });
}

// Sums over an expert's rows: of the gradients of gate|up, and of dy times the weights.
void add_bias_gradients(const MoeExperts& op, const ChoicesByExpert& rows, const Tensor& dy,
                        const ReturnedRows& returned, const MoeExperts::Grads& grads) {
  grads.gate_up_bias.fill_zero();
  grads.down_bias.fill_zero();
  parallel_for(op.experts, [&](int64_t e) {
    if (rows.of(e) == 0) return;
    add_column_sums(block_of(returned.dgate_up, rows.first(e), 0), rows.of(e), 2 * op.width(),
                    grads.gate_up_bias.data<float>() + e * 2 * op.width());
  });
  std::vector<float> weights = weights_of(rows, op.weights);
  for_gathered_experts(op, rows, dy, [&](ExpertRange experts, const RowsOfExperts& d) {
    parallel_for(experts.second - experts.first, [&](int64_t i) {
      const int64_t e = experts.first + i, first = rows.first(e), count = rows.of(e);
      const Scores own{weights.data() + first, 1, count, count, count, 1, 0, 1};
      if (count > 0)
        mix_rows(own, block_of(d.of(first, count)), grads.down_bias.data<float>() + e * op.hidden(),
                 op.hidden());
    });
  });
}

MoeExperts::Grads backward(const MoeExperts& op, const MoeExperts::Output& saved, const Tensor& dy,
                           MoeExperts::Wanted wanted, const GradTarget& gate_up, const GradTarget& down) {
  MoeExperts::Grads grads;
  if (wanted.x) grads.x = ops::empty_like(op.x, op.x.shape());
  if (wanted.weights) grads.weights = ops::empty_like(op.x, op.ids.shape(), DType::kF32);
  if (wanted.biases) {
    grads.gate_up_bias = ops::empty_like(op.x, op.gate_up_bias.shape(), DType::kF32);
    grads.down_bias = ops::empty_like(op.x, op.down_bias.shape(), DType::kF32);
  }
  const ReturnedRows returned = empty_returned_rows(op);
  const int64_t count = op.tokens() * op.top_k();
  if (only_counts(op.x.device())) {
    const Tensor results = expert_workspace(op, {wanted.x ? count : op.tokens(), op.hidden()});
    take_for_expert_tasks(op);
    if (wanted.matrices_later) grads.matrices = [returned](const GradTarget&, const GradTarget&) {};
    return grads;
  }
  const ChoicesByExpert rows(op.ids, op.experts);
  leave_experts(op, rows, {}, saved.gate_up, dy, returned);
  if (wanted.weights) {
    sum_dots(rows, returned.dots, grads.weights);
    add_bias_dots(op, dy, grads.weights);
  }
  if (wanted.x) {
    const Tensor results = expert_workspace(op, {count, op.hidden()});
    multiply_by_experts(rows, returned.dgate_up, {op.gate_up, {}, 2 * op.width()}, false, {}, results);
    rows.sum(results, grads.x);
  }
  if (wanted.matrices_later)
    grads.matrices = [op, rows, dy, returned](const GradTarget& to_gate_up, const GradTarget& to_down) {
      add_matrix_gradients(op, rows, dy, returned, to_gate_up, to_down);
    };
  else
    add_matrix_gradients(op, rows, dy, returned, gate_up, down);
  if (wanted.biases) add_bias_gradients(op, rows, dy, returned, grads);
  return grads;
}

bool reads_codes(const Tensor&, const Tensor&) { return true; }

}  // namespace

ops::Kernel<MoeExperts> moe_experts_kernel() {
  return {.accepts = refuse_float16,
          .forward = forward,
          .backward = backward,
          .batch_invariant = sums_alike(DType::kF32) && sums_alike(DType::kBF16),
          .traits = {.reads_codes = reads_codes},
          .outline = {forward, backward}};
}

void register_onednn_moe_experts() { ops::kernels<MoeExperts>().add("onednn", moe_experts_kernel()); }

}  // namespace temper::backends
