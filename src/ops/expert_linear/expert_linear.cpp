#include "ops/expert_linear/expert_linear.h"

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/moe_experts/compose.h"
#include "ops/op_info.h"
#include "ops/op_listener.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

Var compose(Tape& tape, const Var& x, const Tensor& ids, const Var& weight, int64_t experts) {
  return compose_by_expert(tape, x, ids, experts, [&](int64_t expert, const Var& rows) {
    return p::matmul(tape, rows, matrix_of_expert(tape, weight, expert, experts), {.transpose_b = true});
  });
}

void check(const Var& x, const Tensor& ids, const Var& weight, int64_t experts) {
  constexpr auto op = ExpertLinear::kName;
  check_ndim(op, "x", x.value, 2);
  check_float(op, "x", x.value);
  check_contiguous(op, "x", x.value);
  check_dtype(op, "ids", ids, DType::kI32);
  check_shape(op, "ids", ids, {x.shape()[0], 1});
  check_contiguous(op, "ids", ids);
  check_ndim(op, "weight", weight.value, 2);
  check_dtype(op, "weight", weight.value, x.dtype());
  check_contiguous(op, "weight", weight.value);
  if (experts < 1 || weight.shape()[0] % experts != 0)
    fail("[{}] weight is {}, needs as many rows for each of {} experts", op, to_string(weight.shape()),
         experts);
  check_shape(op, "weight", weight.value, {weight.shape()[0], x.shape()[1]});
  for (const int32_t id : visible_ids(ids))
    if (id < 0 || id >= experts) fail("[{}] ids has expert {}, needs 0 to {}", op, id, experts - 1);
}

// Of the product itself and of those of its gradients.
trace::OpWork work(const ExpertLinear& op) {
  const auto rows = static_cast<double>(op.rows());
  const double flops = 2 * rows * static_cast<double>(op.in() * op.out());
  const double bytes = static_cast<double>(op.weight.bytes()) +
                       rows * static_cast<double>((op.in() + op.out()) * size_of(op.weight.dtype()));
  return {{flops, bytes}, {2 * flops, 2 * bytes}};
}

}  // namespace

Var expert_linear(Tape& tape, Bound<ExpertLinear> bound, const Var& x, const Tensor& ids, const Var& weight,
                  int64_t experts) {
  check(x, ids, weight, experts);
  const auto& kernel = *bound;
  const ExpertLinear op{x.value, ids, weight.value, experts};
  const trace::Span span(ExpertLinear::kName, [&] { return work(op); });
  if (kernel.compose != nullptr)
    return observed(ExpertLinear::kName, weight.value, kernel.compose(tape, x, ids, weight, experts));
  const Saved saved_x = weight.requires_grad() ? x.saved() : Saved();
  const Var result =
      tape.record(kernel.forward(op), {&x, &weight},
                  [saved_x, saved_weight = weight.saved(), ids, experts, x_slot = x.slot,
                   weight_slot = weight.slot, &kernel](const Tensor& dy) {
                    const ExpertLinear own{saved_x.get(), ids, saved_weight.get(), experts};
                    const GradTarget target = weight_slot ? weight_slot->target(own.weight) : GradTarget{};
                    const Tensor dx = kernel.backward(own, dy.contiguous(), x_slot != nullptr, target);
                    if (x_slot) x_slot->add(dx);
                  });
  return observed(ExpertLinear::kName, weight.value, result);
}

namespace {

Tensor outline_forward(const ExpertLinear& op) { return empty_like(op.x, {op.rows(), op.out()}); }

Tensor outline_backward(const ExpertLinear& op, const Tensor& dy, bool want_dx, const GradTarget&) {
  return want_dx ? empty_like(dy, {op.rows(), op.in()}) : Tensor();
}

}  // namespace

Probe expert_linear_probe;

void register_expert_linear() {
  register_op<ExpertLinear>(
      compose, expert_linear_probe, {outline_forward, outline_backward},
      {.cpu = {{{"onednn", "onednn"}}}, .gpu = {{{"hopper", "hopper", "", 90}, {"cuda", "cuda"}}}});
}

}  // namespace temper::ops
