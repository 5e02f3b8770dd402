#include "backends/cublaslt/cublaslt.h"
#include "backends/cublaslt/few_rows.h"
#include "backends/cublaslt/product.h"
#include "backends/gpu_sums.h"

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

// Whether the updates reach every output: then they come first and the base's product adds to them, for which
// y passes through memory once less. The other way round, y would be read and written again for a few
// operations.
bool reach_all(const LoraLinear& op, int64_t rows) {
  int64_t reached = 0;
  for (const Group& group : op.groups)
    for (const auto& slice : group.slices) reached += group.rows * slice.b.dim(0);
  return reached == rows * op.weight.dim(0);
}

void add_updates(const Group& group, const Tensor& low, const Tensor& y, bool accumulate) {
  int64_t first = 0;
  for (const auto& slice : group.slices) {
    const int64_t rank = slice.b.dim(1);
    multiply({.a = low.narrow(1, first, rank),
              .b = slice.b,
              .d = part_of(y, group, slice),
              .transpose_b = true,
              .accumulate = accumulate,
              .scale = slice.scale});
    first += rank;
  }
}

LoraLinear::Output forward(const LoraLinear& op) {
  const int64_t rows = op.x.dim(0);
  const ops::Linear base{op.x, op.weight, op.bias, op.scales};
  const bool updates_first = reach_all(op, rows) && !are_few_rows(op.x, op.weight);
  LoraLinear::Output out{
      updates_first ? empty_beside(op.x, rows, op.weight.dim(0)) : cublaslt_linear_kernel().forward(base),
      {}};
  for (const Group& group : op.groups) {
    out.low.push_back(empty_beside(op.x, group.rows, group.a.dim(0)));
    if (group.rows == 0) continue;
    multiply({.a = rows_read(op, group), .b = group.a, .d = out.low.back(), .transpose_b = true});
    add_updates(group, out.low.back(), out.y, !updates_first);
  }
  if (updates_first)
    multiply(
        {.a = op.x, .b = op.weight, .d = out.y, .transpose_b = true, .accumulate = true, .bias = op.bias});
  return out;
}

// Gradients of the slices' b, and that of input aᵀ.
Tensor slice_gradients(const Group& group, const Tensor& low, const Tensor& dy,
                       const std::vector<GradTarget>& targets) {
  const Tensor dlow = empty_beside(dy, group.rows, group.a.dim(0));
  int64_t first = 0;
  for (size_t s = 0; s < group.slices.size(); ++s) {
    const auto& slice = group.slices[s];
    const int64_t rank = slice.b.dim(1);
    const Tensor part = part_of(dy, group, slice);
    multiply({.a = part, .b = slice.b, .d = dlow.narrow(1, first, rank), .scale = slice.scale});
    if (targets[s].wanted())
      multiply({.a = part,
                .b = low.narrow(1, first, rank),
                .d = targets[s].buffer,
                .transpose_a = true,
                .accumulate = targets[s].accumulate,
                .scale = slice.scale});
    first += rank;
  }
  return dlow;
}

void forget(const GradTarget& target) {
  if (target.wanted() && !target.accumulate) target.buffer.fill_zero();
}

// Whether every row of x gets a gradient through an adapter that reads it: as for y, these come first.
bool all_read_x(const LoraLinear& op, int64_t rows) {
  int64_t read = 0;
  for (const Group& group : op.groups) read += group.input.defined() ? 0 : group.rows;
  return read == rows;
}

LoraLinear::Gradients backward(const LoraLinear& op, const std::vector<Tensor>& low, const Tensor& dy,
                               const LoraLinear::Targets& targets) {
  const int64_t rows = dy.dim(0);
  const bool updates_first = all_read_x(op, rows);
  LoraLinear::Gradients grads{{}, std::vector<Tensor>(op.groups.size())};
  if (targets.bias.wanted()) add_row_sums(dy, targets.bias);
  if (targets.x) {
    grads.x = empty_beside(dy, rows, op.weight.dim(1));
    if (!updates_first) multiply({.a = dy, .b = op.weight, .d = grads.x});
  }
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
      multiply({.a = dlow,
                .b = group.a,
                .d = grads.x.narrow(0, group.row, group.rows),
                .accumulate = !updates_first});
    }
  }
  if (targets.x && updates_first) multiply({.a = dy, .b = op.weight, .d = grads.x, .accumulate = true});
  return grads;
}

ops::Refusal accepts(const LoraLinear::Signature&, const HardwareFacts& facts) {
  return refuse_without_cublaslt(facts);
}

}  // namespace

ops::Kernel<LoraLinear> cublaslt_lora_linear_kernel() {
  return {.hardware = hardware::kGpu,
          .accepts = accepts,
          .forward = forward,
          .backward = backward,
          .reads_codes = are_few_rows};
}

}  // namespace temper::backends
