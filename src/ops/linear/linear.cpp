#include "ops/linear/linear.h"

#include "base/trace.h"
#include "ops/checks.h"
#include "ops/op_info.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

Var compose(Tape& tape, const Var& x, const Var& weight, const Var& bias) {
  const Var y = primitives::matmul(tape, x, weight, {.transpose_b = true});
  return bias.value.defined() ? primitives::add(tape, y, bias) : y;
}

void check(const Var& x, const Var& weight, const Var& bias) {
  constexpr auto op = Linear::kName;
  check_ndim(op, "x", x.value, 2);
  check_ndim(op, "weight", weight.value, 2);
  check_float(op, "x", x.value);
  check_dtype(op, "weight", weight.value, x.dtype());
  check_shape(op, "x", x.value, {x.shape()[0], weight.shape()[1]});
  check_contiguous(op, "x", x.value);
  check_contiguous(op, "weight", weight.value);
  if (!bias.value.defined()) return;
  check_shape(op, "bias", bias.value, {weight.shape()[0]});
  check_dtype(op, "bias", bias.value, x.dtype());
}

// Backward makes the gradients that are wanted: dx of dy and the weight, dweight of dy and x.
trace::OpWork work(const Var& x, const Var& weight) {
  const double flops = 2.0 * static_cast<double>(x.shape()[0]) * static_cast<double>(weight.value.numel());
  const int64_t y = x.shape()[0] * weight.shape()[0] * size_of(x.dtype());
  const auto work_of = [&](double count, int64_t bytes) {
    return trace::Work{count * flops, static_cast<double>(bytes + y)};
  };
  const bool dx = x.requires_grad(), dweight = weight.requires_grad();
  const int64_t for_dx = x.value.bytes() + weight.value.bytes(),
                for_dweight = x.value.bytes() + weight.value.numel() * size_of(DType::kF32);
  return {work_of(1, x.value.bytes() + weight.value.bytes()),
          work_of(dx + dweight, (dx ? for_dx : 0) + (dweight ? for_dweight : 0))};
}

}  // namespace

Var linear(Tape& tape, const BoundOps& ops, const Var& x, const Var& weight, const Var& bias) {
  check(x, weight, bias);
  const trace::Span span(Linear::kName, [&] { return work(x, weight); });
  const auto& kernel = ops.get<Linear>();
  if (kernel.compose != nullptr) return kernel.compose(tape, x, weight, bias);
  // A frozen weight's product need not keep what it read.
  const Saved saved_x = weight.requires_grad() ? x.saved() : Saved();
  return tape.record(kernel.forward({x.value, weight.value, bias.value}), {&x, &weight, &bias},
                     [saved_x, value = weight.value, bias_value = bias.value, x = x.slot,
                      weight = weight.slot, bias = bias.slot, &kernel](const Tensor& dy) {
                       const Linear op{saved_x.get(), value, bias_value};
                       const GradTarget dweight = weight ? weight->target(op.weight) : GradTarget{};
                       const GradTarget dbias = bias ? bias->target(op.bias) : GradTarget{};
                       const Tensor dx = kernel.backward(op, dy.contiguous(), x != nullptr, dweight, dbias);
                       if (x) x->add(dx);
                     });
}

Probe linear_probe;

void register_linear() { register_op<Linear>(compose, linear_probe); }

}  // namespace temper::ops
