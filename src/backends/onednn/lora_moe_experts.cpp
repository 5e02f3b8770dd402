// The experts of a frozen mixture with an adapter's updates, which continue the sums of the experts'
// products.
#include "ops/lora_moe_experts/lora_moe_experts.h"
#include "backends/onednn/expert_products.h"
#include "backends/onednn/onednn.h"

namespace temper::backends {
namespace {

using ops::LoraMoeExperts, ops::MoeExperts;
using Update = LoraMoeExperts::Update;
using Parts = std::vector<ExpertTerms::Part>;

int64_t ranks_of(const Update& update, int64_t experts) { return update.a.dim(0) / experts; }

// The terms of forward; narrow_by_experts makes the gradients of low with the same.
Parts parts_of_slices(const Update& update, int64_t experts) {
  Parts parts;
  int64_t first = 0;
  for (const auto& slice : update.slices) {
    const int64_t rank = slice.b.dim(1);
    parts.push_back({slice.b, true, first, rank, slice.column, slice.b.dim(0) / experts});
    first += rank;
  }
  return parts;
}
// That of the way back to what `a` read; narrow_by_experts makes low with the same.
Parts part_of_a(const Update& update, int64_t experts) {
  return {{update.a, false, 0, ranks_of(update, experts), 0, update.a.dim(1)}};
}
// Of each rank.
std::vector<float> scales_of(const Update& update) {
  std::vector<float> scales;
  for (const auto& slice : update.slices)
    scales.insert(scales.end(), static_cast<size_t>(slice.b.dim(1)), slice.scale);
  return scales;
}

Tensor empty_low(const MoeExperts& op, const Update& update, bool saved) {
  if (update.slices.empty()) return {};
  const Shape shape{op.tokens() * op.top_k(), ranks_of(update, op.experts)};
  return saved ? ops::empty_like(op.x, shape) : expert_workspace(op, shape);
}

// The products with `a`, each slice's times its scale, so that what is made of them needs it no more.
ExpertTerms forward_update(const MoeExperts& op, const ChoicesByExpert& rows, const Update& update,
                           const Tensor& given, bool gathers, const Tensor& low) {
  if (update.slices.empty()) return {};
  narrow_by_experts(rows, given, gathers, part_of_a(update, op.experts), scales_of(update), low);
  return {low, parts_of_slices(update, op.experts)};
}

// The same of the gradients d, which go on to what `a` read.
ExpertTerms backward_update(const MoeExperts& op, const ChoicesByExpert& rows, const Update& update,
                            const Tensor& d, bool gathers, const Tensor& dlow) {
  if (update.slices.empty()) return {};
  narrow_by_experts(rows, d, gathers, parts_of_slices(update, op.experts), scales_of(update), dlow);
  return {dlow, part_of_a(update, op.experts)};
}

bool any_b(const LoraMoeExperts::UpdateTargets& targets) {
  for (const GradTarget& b : targets.b)
    if (b.wanted()) return true;
  return false;
}

void add_b_gradients(const ChoicesByExpert& rows, const Update& update, int64_t all, ExpertRange experts,
                     const RowsOfExperts& d, const Tensor& low,
                     const LoraMoeExperts::UpdateTargets& targets) {
  int64_t first = 0;
  for (size_t s = 0; s < update.slices.size(); ++s) {
    const auto& slice = update.slices[s];
    const int64_t rank = slice.b.dim(1);
    if (targets.b[s].wanted())
      add_expert_gradients(rows, experts, {d.rows.narrow(1, slice.column, slice.b.dim(0) / all), d.first},
                           {low.narrow(1, first, rank)}, targets.b[s]);
    first += rank;
  }
}

LoraMoeExperts::Output forward(const LoraMoeExperts& lora, bool want_saved) {
  const MoeExperts& op = lora.experts;
  const int64_t count = op.tokens() * op.top_k();
  LoraMoeExperts::Output out{ops::empty_like(op.x, op.x.shape()), {}, {}, {}, {}};
  const Shape wide{count, 2 * op.width()};
  const Tensor gate_up = want_saved ? ops::empty_like(op.x, wide) : expert_workspace(op, wide);
  const Tensor low_gate_up = empty_low(op, lora.gate_up, want_saved),
               low_down = empty_low(op, lora.down, want_saved);
  if (want_saved) {
    out.gate_up = gate_up;
    out.low_gate_up = low_gate_up;
    out.low_down = low_down;
  }
  run_experts(
      op,
      [&](const ChoicesByExpert& rows, const Tensor& x) {
        return forward_update(op, rows, lora.gate_up, x, true, low_gate_up);
      },
      [&](const ChoicesByExpert& rows, const Tensor& inner) {
        return forward_update(op, rows, lora.down, inner, false, low_down);
      },
      gate_up, out.y);
  return out;
}

struct BothTerms {
  const ExpertTerms &gate_up, &down;
};

void add_gradients(const LoraMoeExperts& lora, const ChoicesByExpert& rows,
                   const LoraMoeExperts::Output& saved, const Tensor& dy, const ReturnedRows& returned,
                   const BothTerms& terms, const LoraMoeExperts::Targets& targets) {
  const MoeExperts& op = lora.experts;
  const ExpertRange all{0, op.experts};
  if (targets.down.a.wanted())
    add_expert_gradients(rows, all, {terms.down.low}, {returned.y}, targets.down.a);
  if (any_b(targets.down))
    for_gathered_experts(op, rows, dy, [&](ExpertRange experts, const RowsOfExperts& d) {
      add_b_gradients(rows, lora.down, op.experts, experts, d, saved.low_down, targets.down);
    });
  if (targets.gate_up.a.wanted())
    for_gathered_experts(op, rows, op.x, [&](ExpertRange experts, const RowsOfExperts& x) {
      add_expert_gradients(rows, experts, {terms.gate_up.low}, x, targets.gate_up.a);
    });
  add_b_gradients(rows, lora.gate_up, op.experts, all, {returned.dgate_up}, saved.low_gate_up,
                  targets.gate_up);
}

MoeExperts::Grads backward(const LoraMoeExperts& lora, const LoraMoeExperts::Output& saved, const Tensor& dy,
                           const LoraMoeExperts::Targets& targets) {
  const MoeExperts& op = lora.experts;
  MoeExperts::Grads grads;
  if (targets.x) grads.x = ops::empty_like(op.x, op.x.shape());
  if (targets.weights) grads.weights = ops::empty_like(op.x, op.ids.shape(), DType::kF32);
  const ReturnedRows returned = empty_returned_rows(op);
  const Tensor dlow_down = empty_low(op, lora.down, false), dlow_gate_up = empty_low(op, lora.gate_up, false);
  const int64_t count = op.tokens() * op.top_k();
  if (only_counts(op.x.device())) {
    const bool gathers = any_b(targets.down) || targets.gate_up.a.wanted();
    const Tensor results = expert_workspace(op, {targets.x ? count : gathers ? op.tokens() : 0, op.hidden()});
    take_for_expert_tasks(op);
    return grads;
  }
  const ChoicesByExpert rows(op.ids, op.experts);
  const ExpertTerms down = backward_update(op, rows, lora.down, dy, true, dlow_down);
  leave_experts(op, rows, down, saved.gate_up, dy, returned);
  if (targets.weights) sum_dots(rows, returned.dots, grads.weights);
  const ExpertTerms gate_up = backward_update(op, rows, lora.gate_up, returned.dgate_up, false, dlow_gate_up);
  if (targets.x) {
    const Tensor results = expert_workspace(op, {count, op.hidden()});
    multiply_by_experts(rows, returned.dgate_up, {op.gate_up, {}, 2 * op.width()}, false, gate_up, results);
    rows.sum(results, grads.x);
  }
  add_gradients(lora, rows, saved, dy, returned, {gate_up, down}, targets);
  return grads;
}

}  // namespace

void register_onednn_lora_moe_experts() {
  const ops::Kernel<MoeExperts> frozen = moe_experts_kernel();
  ops::kernels<LoraMoeExperts>().add("onednn", {.accepts = frozen.accepts,
                                                .forward = forward,
                                                .backward = backward,
                                                .batch_invariant = frozen.batch_invariant,
                                                .traits = frozen.traits,
                                                .outline = {forward, backward}});
}

}  // namespace temper::backends
