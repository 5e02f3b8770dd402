#include "backends/cublaslt/cublaslt.h"
#include "backends/cublaslt/product.h"

namespace temper::backends {
namespace {

using ops::LoraLinear;
using Group = LoraLinear::Group;

Tensor empty_beside(const Tensor& x, int64_t rows, int64_t columns) {
  return Tensor::empty({rows, columns}, x.dtype(), MemoryTag::kActivations, x.device());
}

Tensor rows_read(const LoraLinear& op, const Group& group) {
  return group.input.defined() ? group.input : op.x.narrow(0, group.row, group.rows);
}

// The part of y, or of its gradient, that a slice updates.
Tensor part_of(const Tensor& y, const Group& group, const Group::Slice& slice) {
  return y.narrow(0, group.row, group.rows).narrow(1, slice.column, slice.b.dim(0));
}

LoraLinear::Output forward(const LoraLinear& op) {
  LoraLinear::Output out{cublaslt_linear_kernel().forward({op.x, op.weight, op.bias}), {}};
  for (const Group& group : op.groups) {
    const Tensor low = empty_beside(op.x, group.rows, group.a.dim(0));
    if (group.rows > 0) multiply({.a = rows_read(op, group), .b = group.a, .d = low, .transpose_b = true});
    out.low.push_back(ops::scaled_low(group, low));
    if (group.rows == 0) continue;
    int64_t first = 0;
    for (const auto& slice : group.slices) {
      multiply({.a = out.low.back().narrow(1, first, slice.b.dim(1)),
                .b = slice.b,
                .d = part_of(out.y, group, slice),
                .transpose_b = true,
                .accumulate = true});
      first += slice.b.dim(1);
    }
  }
  return out;
}

// Gradients of the slices' b, and that of input aᵀ, scaled.
Tensor slice_gradients(const Group& group, const Tensor& low, const Tensor& dy,
                       const std::vector<GradTarget>& targets) {
  const Tensor dlow = empty_beside(dy, group.rows, group.a.dim(0));
  int64_t first = 0;
  for (size_t s = 0; s < group.slices.size(); ++s) {
    const auto& slice = group.slices[s];
    const int64_t rank = slice.b.dim(1);
    const Tensor part = part_of(dy, group, slice);
    multiply({.a = part, .b = slice.b, .d = dlow.narrow(1, first, rank)});
    if (targets[s].wanted())
      multiply({.a = part,
                .b = low.narrow(1, first, rank),
                .d = targets[s].buffer,
                .transpose_a = true,
                .accumulate = targets[s].accumulate});
    first += rank;
  }
  return ops::scaled_low(group, dlow);
}

void forget(const GradTarget& target) {
  if (target.wanted() && !target.accumulate) target.buffer.fill_zero();
}

LoraLinear::Gradients backward(const LoraLinear& op, const std::vector<Tensor>& low, const Tensor& dy,
                               const LoraLinear::Targets& targets) {
  LoraLinear::Gradients grads{
      cublaslt_linear_kernel().backward({op.x, op.weight, op.bias}, dy, targets.x, {}, targets.bias),
      std::vector<Tensor>(op.groups.size())};
  for (size_t i = 0; i < op.groups.size(); ++i) {
    const Group& group = op.groups[i];
    const LoraLinear::GroupTargets& wanted = targets.groups[i];
    if (group.rows == 0) {
      forget(wanted.a);
      for (const GradTarget& b : wanted.b) forget(b);
      if (wanted.input) grads.inputs[i] = empty_beside(dy, 0, op.weight.dim(1));
      continue;
    }
    const Tensor dlow = slice_gradients(group, low[i], dy, wanted.b);
    if (wanted.a.wanted())
      multiply({.a = dlow,
                .b = rows_read(op, group),
                .d = wanted.a.buffer,
                .transpose_a = true,
                .accumulate = wanted.a.accumulate});
    if (wanted.input) {
      grads.inputs[i] = empty_beside(dy, group.rows, op.weight.dim(1));
      multiply({.a = dlow, .b = group.a, .d = grads.inputs[i]});
    } else if (!group.input.defined() && targets.x) {
      multiply({.a = dlow, .b = group.a, .d = grads.x.narrow(0, group.row, group.rows), .accumulate = true});
    }
  }
  return grads;
}

ops::Refusal accepts(const LoraLinear::Signature&, const HardwareFacts& facts) {
  return refuse_without_cublaslt(facts);
}

}  // namespace

ops::Kernel<LoraLinear> cublaslt_lora_linear_kernel() {
  return {.hardware = hardware::kGpu, .accepts = accepts, .forward = forward, .backward = backward};
}

}  // namespace temper::backends
