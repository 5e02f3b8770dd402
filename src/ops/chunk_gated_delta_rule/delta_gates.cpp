#include "ops/chunk_gated_delta_rule/delta_gates.h"

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/chunk_gated_delta_rule/outlines.h"
#include "ops/op_listener.h"

namespace temper::ops {
namespace {

void check(const DeltaGates& op) {
  constexpr auto name = DeltaGates::kName;
  check_ndim(name, "a", op.a, 2);
  check_float(name, "a", op.a);
  check_shape(name, "b", op.b, op.a.shape());
  check_dtype(name, "b", op.b, op.a.dtype());
  for (const auto& [label, tensor] : {std::pair{"a", &op.a}, {"b", &op.b}})
    check_contiguous(name, label, *tensor, 1);
  check_shape(name, "a_log", op.a_log, {op.a.dim(1)});
  check_shape(name, "dt_bias", op.dt_bias, {op.a.dim(1)});
  if (op.a_log.dtype() != DType::kF32) check_dtype(name, "a_log", op.a_log, op.a.dtype());
  check_dtype(name, "dt_bias", op.dt_bias, op.a_log.dtype());
}

DeltaGates::Output outline_forward(const DeltaGates& op) {
  return {empty_like(op.a, op.a.shape(), DType::kF32), empty_like(op.a, op.a.shape(), DType::kF32)};
}

DeltaGates::Grads outline_backward(const DeltaGates& op, const Tensor&, const Tensor&, const GradTarget&,
                                   const GradTarget&) {
  return {empty_like(op.a, op.a.shape()), empty_like(op.a, op.a.shape())};
}

}  // namespace

Outline<DeltaGates> delta_gates_outline() { return {outline_forward, outline_backward}; }

Gates delta_gates(Tape& tape, Bound<DeltaGates> bound, const Var& a, const Var& b, const Var& a_log,
                  const Var& dt_bias) {
  const DeltaGates op{a.value, b.value, a_log.value, dt_bias.value};
  check(op);
  const trace::Span span(DeltaGates::kName, [&] {
    const auto bytes = static_cast<double>(op.a.bytes() + op.b.bytes() + 8 * op.a.numel());
    return trace::OpWork{{0, bytes}, {0, 2 * bytes}};
  });
  const auto& kernel = *bound;
  if (kernel.compose != nullptr)
    return observed(DeltaGates::kName, a_log.value, kernel.compose(tape, a, b, a_log, dt_bias),
                    {&Gates::g, &Gates::beta});
  const DeltaGates::Output out = kernel.forward(op);
  const auto backward = [op, a = a.slot, b = b.slot, a_log = a_log.slot, dt_bias = dt_bias.slot,
                         &kernel](const std::vector<Tensor>& grads) {
    const auto whole = [&](const Tensor& grad) {
      return grad.defined()
                 ? grad.contiguous()
                 : Tensor::zeros(op.a.shape(), DType::kF32, MemoryTag::kActivations, op.a.device());
    };
    const auto target = [](const auto& slot, const Tensor& value) {
      return slot ? slot->target(value) : GradTarget{};
    };
    const DeltaGates::Grads own = kernel.backward(op, whole(grads[0]), whole(grads[1]),
                                                  target(a_log, op.a_log), target(dt_bias, op.dt_bias));
    if (a) a->add(own.a);
    if (b) b->add(own.b);
  };
  const std::vector<Var> vars = tape.record({out.g, out.beta}, {&a, &b, &a_log, &dt_bias}, backward);
  return observed(DeltaGates::kName, a_log.value, Gates{vars[0], vars[1]}, {&Gates::g, &Gates::beta});
}

}  // namespace temper::ops
