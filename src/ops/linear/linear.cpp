#include "ops/linear/linear.h"

#include "autograd/later_gradients.h"
#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/op_info.h"
#include "ops/op_listener.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

Var compose(Tape& tape, const Var& x, const Var& weight, const Var& bias) {
  const Var y = primitives::matmul(tape, x, weight, {.transpose_b = true});
  return bias.value.defined() ? primitives::add(tape, y, bias) : y;
}

void check(const Var& x, const primitives::Matrix& weight, const Var& bias) {
  constexpr auto op = Linear::kName;
  check_ndim(op, "x", x.value, 2);
  check_float(op, "x", x.value);
  check_weight(op, weight, x.dtype());
  check_shape(op, "x", x.value, {x.shape()[0], weight.shape()[1]});
  check_contiguous(op, "x", x.value);
  if (!bias.value.defined()) return;
  check_shape(op, "bias", bias.value, {weight.shape()[0]});
  check_dtype(op, "bias", bias.value, x.dtype());
}

// Of the product itself and of those of its two gradients: dx of dy and the weight, dweight of dy and x.
struct Costs {
  trace::Work forward, input, weights;
};

Costs costs(const Tensor& x, const Tensor& weight) {
  const double flops = 2.0 * static_cast<double>(x.dim(0)) * static_cast<double>(weight.numel());
  const auto inputs = static_cast<double>(x.bytes()), weights = static_cast<double>(weight.bytes()),
             outputs = static_cast<double>(x.dim(0) * weight.dim(0) * size_of(x.dtype())),
             dweight = static_cast<double>(weight.numel() * size_of(DType::kF32));
  const trace::Work product{flops, inputs + weights + outputs};
  return {product, product, {flops, inputs + outputs + dweight}};
}

// What the closure of one product keeps.
struct Gradients {
  Saved x, weight;
  Tensor bias;
  std::shared_ptr<GradSlot> x_slot, weight_slot, bias_slot;
  const Kernel<Linear>& kernel;

  void of_input(const Tensor& dy) const {
    x_slot->add(kernel.backward({{}, weight.get(), bias}, dy, true, {}, {}));
  }
  void of_weights(const Tensor& x_value, const Tensor& dy) const { run(x_value, dy, false); }
  void of_all(const Tensor& dy) const {
    const Tensor dx = run(x.get(), dy, x_slot != nullptr);
    if (x_slot) x_slot->add(dx);
  }
  void in_two_parts(const Tensor& dy, LaterGradients& later) const {
    if (x_slot) of_input(dy);
    later.leave([late = *this, dy] { late.of_weights(late.x.get(), dy); });
  }

 private:
  Tensor run(const Tensor& x_value, const Tensor& dy, bool want_dx) const {
    const Tensor w = weight.get();
    const GradTarget dweight = weight_slot ? weight_slot->target(w) : GradTarget{};
    const GradTarget dbias = bias_slot ? bias_slot->target(bias) : GradTarget{};
    return kernel.backward({x_value, w, bias}, dy, want_dx, dweight, dbias);
  }
};

}  // namespace

Var linear(Tape& tape, Bound<Linear> bound, const Var& x, const primitives::Matrix& matrix, const Var& bias) {
  check(x, matrix, bias);
  const Var& weight = matrix.value;
  // A frozen weight's product need not keep what it read.
  const Saved saved_x = weight.requires_grad() ? x.saved() : Saved();
  const Gradients gradients{saved_x, weight.saved(), bias.value, x.slot, weight.slot, bias.slot, *bound};
  // The op before may come by x in its backward pass, after it was given the gradient of x.
  const bool waits = x.requires_grad() && saved_x.comes();
  const trace::Span span(Linear::kName, [&] {
    const Costs c = costs(x.value, weight.value);
    const double dx = x.requires_grad(), dweight = weight.requires_grad() && !waits;
    return trace::OpWork{
        c.forward,
        {dx * c.input.flops + dweight * c.weights.flops, dx * c.input.bytes + dweight * c.weights.bytes}};
  });
  if (gradients.kernel.compose != nullptr)
    return observed(Linear::kName, weight.value, gradients.kernel.compose(tape, x, matrix.widened(), bias));
  Linear op{x.value, {}, bias.value};
  set_weight(op, matrix, gradients.kernel);
  const Var result = tape.record(gradients.kernel.forward(op), {&x, &weight, &bias},
                                 [gradients, waits](const Tensor& given_dy) {
                                   const Tensor dy = given_dy.contiguous();
                                   if (auto* const later = LaterGradients::of(gradients.weight_slot))
                                     return gradients.in_two_parts(dy, *later);
                                   if (!waits) return gradients.of_all(dy);
                                   gradients.of_input(dy);
                                   Gradients late = gradients;
                                   late.x = {};  // who waits there must not hold it
                                   gradients.x.await([late, dy](const Tensor& x_value) {
                                     const trace::Span late_span("linear backward", [&] {
                                       return trace::OpWork{costs(x_value, late.weight.get()).weights, {}};
                                     });
                                     late.of_weights(x_value, dy);
                                   });
                                 });
  return observed(Linear::kName, weight.value, result);
}

namespace {

Tensor outline_forward(const Linear& op) { return empty_like(op.x, {op.x.dim(0), op.weight.dim(0)}); }

Tensor outline_backward(const Linear& op, const Tensor& dy, bool want_dx, const GradTarget&,
                        const GradTarget&) {
  return want_dx ? empty_like(dy, {dy.dim(0), op.weight.dim(1)}) : Tensor();
}

}  // namespace

Probe linear_probe;

void register_linear() {
  register_op<Linear>(compose, linear_probe, {outline_forward, outline_backward},
                      {.cpu = {{{"onednn", "onednn"}, {"onednn_invariant", "onednn_invariant"}}},
                       .gpu = {{{"cublaslt", "cublaslt"}}}});
}

}  // namespace temper::ops
