#pragma once
#include "backends/gpu/expert_rows.h"
#include "backends/gpu/expert_updates.h"

// lora_moe_experts on GPUs: the order of its steps. A room gives these as the members of `Products`, made of
// the frozen model's part and the plan; tensors that are not wanted are undefined, and an update without
// slices has undefined members:
//   narrow(rows, gathers, matrices, transpose, columns, tag): low = rows matrixᵀ, or rows matrix
//   gradient(wide, low, transposed, scale, target): target (+)= scale · Σ wideᵀ low
//   enter(gate_up, inner, update): the product with gate_up, and swiglu
//   multiply(matrices, transpose, rows, d, update): d = rows matrixᵀ, or rows matrix
//   go_back(dy, gate_up, dgate_up, inner, dweights, update): back through down and swiglu
namespace temper::backends {

// What continues the sums of a product: low times each expert's matrix, transposed or not as that product's.
struct ExpertUpdate {
  Tensor low;       // [rows, ranks]
  Tensor matrices;  // [experts · ranks, columns], or [experts · columns, ranks]
};

// Some columns of rows in the plan's order, or of tokens' rows.
struct RowColumns {
  Tensor rows;  // [rows, ·], or [tokens, ·]
  bool gathers = false;
  int64_t column = 0, columns = 0;
};
inline RowColumns all_columns(const Tensor& rows, bool gathers) { return {rows, gathers, 0, rows.dim(1)}; }

template <class Products>
class LoraMoeExpertsBy {
  using Op = ops::LoraMoeExperts;
  using Update = Op::Update;

 public:
  static Op::Output forward(const Op& op, bool want_saved) {
    const ops::MoeExperts& base = op.experts;
    const ExpertPlan plan = plan_experts(base.ids, base.experts);
    const Products products(base, plan);
    const MemoryTag saved = want_saved ? MemoryTag::kActivations : MemoryTag::kWorkspace;
    Op::Output out;
    out.y = ops::empty_like(base.x, base.x.shape());
    if (want_saved) {
      out.gate_up = rows_of_plan(plan, base.x, 2 * base.width(), saved);
      out.places = plan.memory;
    }
    const Tensor rows = rows_of_plan(plan, base.x, base.hidden());
    {
      const Tensor inner = rows_of_plan(plan, base.x, base.width());
      const Tensor low = down_to_rank(op, products, op.gate_up, base.x, true, saved);
      products.enter(out.gate_up, inner,
                     {low, matrices_of_slices(op.gate_up, base.experts, 2 * base.width())});
      const Tensor low_down = down_to_rank(op, products, op.down, inner, false, saved);
      products.multiply(base.down, true, inner, rows,
                        {low_down, matrices_of_slices(op.down, base.experts, base.hidden())});
      if (want_saved) {
        out.low_gate_up = low;
        out.low_down = low_down;
      }
    }
    sum_choices(plan, rows, out.y);
    return out;
  }

  static ops::MoeExperts::Grads backward(const Op& op, const Op::Output& saved, const Tensor& dy,
                                         const Op::Targets& targets) {
    const ops::MoeExperts& base = op.experts;
    const ExpertPlan plan{saved.places, base.ids.numel(), base.experts};
    const Products products(base, plan);
    ops::MoeExperts::Grads grads = empty_gradients(base, targets.x, targets.weights);
    const Tensor dgate_up = rows_of_plan(plan, base.x, 2 * base.width());
    {
      const Tensor dlow = up_from_rank(op, products, op.down, dy, true, base.hidden());
      const Tensor inner = targets.down.a.wanted() ? rows_of_plan(plan, base.x, base.width()) : Tensor();
      products.go_back(dy, saved.gate_up, dgate_up, inner, grads.weights, {dlow, op.down.a});
      add_gradients(products, op.down, {dlow, saved.low_down}, {inner, false}, {dy, true}, targets.down,
                    base.experts);
    }
    const Tensor dlow = up_from_rank(op, products, op.gate_up, dgate_up, false, 2 * base.width());
    add_gradients(products, op.gate_up, {dlow, saved.low_gate_up}, {base.x, true}, {dgate_up, false},
                  targets.gate_up, base.experts);
    if (targets.x) {
      const Tensor rows = rows_of_plan(plan, base.x, base.hidden());
      products.multiply(base.gate_up, false, dgate_up, rows, {dlow, op.gate_up.a});
      sum_choices(plan, rows, grads.x);
    }
    return grads;
  }

 private:
  // The products with `a`, and of the gradients with the slices.
  static Tensor down_to_rank(const Op& op, const Products& products, const Update& update, const Tensor& rows,
                             bool gathers, MemoryTag tag) {
    if (update.slices.empty()) return {};
    return products.narrow(rows, gathers, update.a, true, low_columns(update, op.experts.experts), tag);
  }
  static Tensor up_from_rank(const Op& op, const Products& products, const Update& update, const Tensor& rows,
                             bool gathers, int64_t outputs) {
    if (update.slices.empty()) return {};
    return products.narrow(rows, gathers, matrices_of_slices(update, op.experts.experts, outputs), false,
                           low_columns(update, op.experts.experts), MemoryTag::kWorkspace);
  }
  // `read`: what `a` is multiplied with; `d`: the gradients of all outputs.
  struct LowRows {
    const Tensor &d, &low;  // [rows, Σ ranks]
  };
  static void add_gradients(const Products& products, const Update& update, const LowRows& narrow,
                            const RowColumns& read, const RowColumns& d, const Op::UpdateTargets& targets,
                            int64_t experts) {
    if (update.slices.empty()) return;
    if (targets.a.wanted()) {
      const RowColumns own{narrow.d, false, 0, update.a.dim(0) / experts};
      products.gradient(all_columns(read.rows, read.gathers), own, true, 1, targets.a);
    }
    int64_t first = 0;
    for (size_t s = 0; s < update.slices.size(); ++s) {
      const auto& slice = update.slices[s];
      const int64_t rank = slice.b.dim(1), outputs = slice.b.dim(0) / experts;
      if (targets.b[s].wanted())
        products.gradient({d.rows, d.gathers, slice.column, outputs}, {narrow.low, false, first, rank}, false,
                          slice.scale, targets.b[s]);
      first += rank;
    }
  }
};

}  // namespace temper::backends
