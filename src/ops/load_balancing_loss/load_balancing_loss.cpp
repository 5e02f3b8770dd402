#include "ops/load_balancing_loss/load_balancing_loss.h"

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/op_info.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

// What each expert's sum counts.
Tensor factors(const LoadBalancingLoss& op) {
  const int64_t width = op.counts.front().dim(0), experts = width - 1;
  std::vector<double> chosen(static_cast<size_t>(experts));
  double all = 0;
  for (const Tensor& counts : op.counts) {
    const Tensor here = counts.on({});
    for (int64_t e = 0; e < experts; ++e) {
      chosen[static_cast<size_t>(e)] += here.data<int32_t>()[e];
      all += here.data<int32_t>()[e];
    }
  }
  const double rows = all / static_cast<double>(op.top_k);
  const double each = static_cast<double>(op.factor) * static_cast<double>(experts) *
                      static_cast<double>(op.inverse_tokens) / static_cast<double>(op.sums.size());
  std::vector<float> found(static_cast<size_t>(width));
  if (rows > 0)
    for (size_t e = 0; e < chosen.size(); ++e) found[e] = static_cast<float>(each * chosen[e] / rows);
  return Tensor::from(found);
}

Var compose(Tape& tape, const std::vector<Var>& sums, const LoadBalancingLoss& op) {
  const Var weights = tape.constant(factors(op).on(sums.front().value.device()));
  Var loss;
  for (const Var& each : sums) {
    const Var part = p::sum_last(tape, p::mul(tape, each, weights));
    loss = loss.value.defined() ? p::add(tape, loss, part) : part;
  }
  return loss;
}

void check(const std::vector<Var>& sums, const LoadBalancingLoss& op) {
  constexpr std::string_view kOp = LoadBalancingLoss::kName;
  if (sums.empty() || op.counts.size() != sums.size())
    fail("[{}] sums of {} routers and counts of {}, needs as many, one at least", kOp, sums.size(),
         op.counts.size());
  const Shape& shape = sums.front().shape();
  check_ndim(kOp, "sums", sums.front().value, 1);
  for (size_t i = 0; i < sums.size(); ++i) {
    check_shape(kOp, "sums", sums[i].value, shape);
    check_dtype(kOp, "sums", sums[i].value, DType::kF32);
    check_shape(kOp, "counts", op.counts[i], shape);
    check_dtype(kOp, "counts", op.counts[i], DType::kI32);
  }
  if (op.top_k < 1) fail("[{}] top_k is {}, needs 1 or more", kOp, op.top_k);
}

}  // namespace

Var load_balancing_loss(Tape& tape, Bound<LoadBalancingLoss> bound, const std::vector<Var>& sums,
                        LoadBalancingLoss op) {
  check(sums, op);
  const trace::Span span(LoadBalancingLoss::kName);
  const auto& kernel = *bound;
  for (const Var& each : sums) op.sums.push_back(each.value);
  if (kernel.compose != nullptr) return kernel.compose(tape, sums, op);
  std::vector<const Var*> inputs;
  std::vector<std::shared_ptr<GradSlot>> slots;
  for (const Var& each : sums) {
    inputs.push_back(&each);
    slots.push_back(each.slot);
  }
  return tape.record(kernel.forward(op), inputs, [op, slots, &kernel](const Tensor& dy) {
    const Tensor gradient = kernel.backward(op, dy);
    for (const auto& slot : slots)
      if (slot) slot->add(gradient);
  });
}

namespace {

Tensor outline_forward(const LoadBalancingLoss& op) { return empty_like(op.sums.front(), {1}); }
Tensor outline_backward(const LoadBalancingLoss& op, const Tensor&) {
  return empty_like(op.sums.front(), op.sums.front().shape());
}

// No counts are there to compute factors from.
Var outline_compose(Tape& tape, const std::vector<Var>& sums, const LoadBalancingLoss& op) {
  std::vector<const Var*> inputs;
  std::vector<std::shared_ptr<GradSlot>> slots;
  for (const Var& each : sums) {
    inputs.push_back(&each);
    slots.push_back(each.slot);
  }
  return tape.record(outline_forward(op), inputs, [op, slots](const Tensor& dy) {
    for (const auto& slot : slots)
      if (slot) slot->add(outline_backward(op, dy));
  });
}

}  // namespace

Probe load_balancing_loss_probe;

void register_load_balancing_loss() {
  register_op<LoadBalancingLoss>(compose, load_balancing_loss_probe,
                                 {outline_forward, outline_backward, outline_compose},
                                 {.cpu = {{{"triton", "triton", "triton"}}},
                                  .gpu = {{{"cuda", "cuda"}, {"triton", "triton", "triton"}}},
                                  .npu = {{{"triton", "triton", "triton"}}}});
}

}  // namespace temper::ops
