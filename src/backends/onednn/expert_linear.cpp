#include "ops/expert_linear/expert_linear.h"

#include "backends/floats.h"
#include "backends/onednn/expert_products.h"

namespace temper::backends {
namespace {

using ops::ExpertLinear;

Tensor workspace(const Tensor& like, int64_t rows, int64_t columns) {
  return Tensor::empty({rows, columns}, like.dtype(), MemoryTag::kWorkspace, like.device());
}

// The rows of each expert together.
Tensor by_expert(const ChoicesByExpert& rows, const Tensor& x) {
  const Tensor sorted = workspace(x, x.dim(0), x.dim(1));
  rows.gather(x, 0, rows.count(), sorted.raw());
  return sorted;
}

// `transpose`: x weightᵀ, else x weight; on a device that only counts the memory of that.
Tensor product(const ExpertLinear& op, const Tensor& sorted, const ChoicesByExpert* rows, bool transpose) {
  const Tensor y = ops::empty_like(sorted, {op.rows(), transpose ? op.out() : op.in()});
  const Tensor results = workspace(sorted, y.dim(0), y.dim(1));
  if (rows == nullptr) {
    take_for_products(sorted, op.rows(), op.experts, y.dim(1), sorted.dim(1));
    return y;
  }
  multiply_by_experts(*rows, sorted, {op.weight, {}, op.out()}, transpose, {}, results);
  rows->sum(results, y);
  return y;
}

Tensor forward(const ExpertLinear& op) {
  if (only_counts(op.x.device())) return product(op, workspace(op.x, op.rows(), op.in()), nullptr, true);
  const ChoicesByExpert rows(op.ids, op.experts);
  return product(op, by_expert(rows, op.x), &rows, true);
}

Tensor backward(const ExpertLinear& op, const Tensor& dy, bool want_dx, const GradTarget& weight) {
  if (only_counts(dy.device())) {
    const Tensor sorted = workspace(dy, op.rows(), op.out());
    const Tensor dx = want_dx ? product(op, sorted, nullptr, false) : Tensor();
    if (weight.wanted()) workspace(dy, op.rows(), op.in());
    return dx;
  }
  const ChoicesByExpert rows(op.ids, op.experts);
  const Tensor sorted = by_expert(rows, dy);
  const Tensor dx = want_dx ? product(op, sorted, &rows, false) : Tensor();
  if (weight.wanted()) add_expert_gradients(rows, {0, op.experts}, {sorted}, {by_expert(rows, op.x)}, weight);
  return dx;
}

}  // namespace

void register_onednn_expert_linear() {
  ops::kernels<ExpertLinear>().add("onednn",
                                   {.accepts = refuse_float16,
                                    .forward = forward,
                                    .backward = backward,
                                    .batch_invariant = sums_alike(DType::kF32) && sums_alike(DType::kBF16),
                                    .outline = {forward, backward}});
}

}  // namespace temper::backends
