#pragma once
#include <algorithm>

#include "backends/gpu/sums.h"
#include "backends/gpu_gemm/few_rows.h"
#include "backends/gpu_gemm/library.h"
#include "backends/gpu_gemm/narrow_gradients.h"
#include "backends/gpu_gemm/product.h"
#include "backends/gpu_gemm/updated_product.h"
#include "ops/lora_linear/lora_linear.h"

// The kernels of lora_linear on GPUs. They differ in who computes the products in which an adapter differs
// from a plain linear: `Products` has multiply (as multiply_and_update), narrow (as narrow_gradients), and
// kTakeSwiglu, whether multiply takes swiglu with it.
namespace temper::backends {
namespace lora {

using ops::LoraLinear;
using Group = LoraLinear::Group;

inline Tensor empty_like(const Tensor& x, int64_t rows, int64_t columns) {
  return Tensor::empty({rows, columns}, x.dtype(), MemoryTag::kActivations, x.device());
}

inline Tensor rows_read(const LoraLinear& op, const Group& group) {
  return group.input.defined() ? group.input : op.x.narrow(0, group.row, group.rows);
}

// Calls f(slice's number, its first rank, how many).
template <class F>
void for_each_slice(const Group& group, F f) {
  int64_t first = 0;
  for (size_t s = 0; s < group.slices.size(); ++s) {
    const int64_t rank = group.slices[s].b.dim(1);
    f(s, first, rank);
    first += rank;
  }
}

// scale · input aᵀ, in one product where the slices have one scale.
inline Tensor low_of(const LoraLinear& op, const Group& group, bool alike = false) {
  const Tensor low = empty_like(op.x, group.rows, group.a.dim(0));
  if (low.numel() == 0) return low;
  const Tensor input = rows_read(op, group);
  const auto multiply_rows = [&](int64_t first, int64_t count, float scale) {
    multiply({.a = input,
              .b = group.a.narrow(0, first, count),
              .d = low.narrow(1, first, count),
              .transpose_b = true,
              .scale = scale,
              .alike = alike});
  };
  const float scale = group.slices[0].scale;
  if (std::all_of(group.slices.begin(), group.slices.end(),
                  [&](const auto& slice) { return slice.scale == scale; }))
    multiply_rows(0, group.a.dim(0), scale);
  else
    for_each_slice(group, [&](size_t s, int64_t first, int64_t rank) {
      multiply_rows(first, rank, group.slices[s].scale);
    });
  return low;
}

template <class Products>
LoraLinear::Output forward(const LoraLinear& op) {
  const bool few = are_few_rows(op.x, op.weight) && !only_counts(op.x.device());
  LoraLinear::Output out;
  out.y =
      few ? few_rows({op.x, op.weight, op.bias, op.scales}) : empty_like(op.x, op.x.dim(0), op.weight.dim(0));
  UpdatedProduct product{op.x, op.weight, out.y, true, op.bias, {}};
  if (op.swiglu) product.y = out.swiglu = empty_like(op.x, op.x.dim(0), op.weight.dim(0) / 2);
  for (const Group& group : op.groups) {
    const Tensor& low = out.low.emplace_back(low_of(op, group));
    if (group.rows == 0) continue;
    for_each_slice(group, [&](size_t s, int64_t first, int64_t rank) {
      const auto& slice = group.slices[s];
      if (slice.b.numel() > 0)
        product.updates.push_back({group.row, slice.column, low.narrow(1, first, rank), slice.b});
    });
  }
  (few ? add_updates : Products::multiply)(product);
  return out;
}

inline LoraLinear::Output forward_alike(const LoraLinear& op) {
  LoraLinear::Output out;
  out.y = empty_like(op.x, op.x.dim(0), op.weight.dim(0));
  multiply({.a = op.x, .b = op.weight, .d = out.y, .transpose_b = true, .bias = op.bias, .alike = true});
  for (const Group& group : op.groups) {
    const Tensor& low = out.low.emplace_back(low_of(op, group, true));
    const Tensor y = out.y.narrow(0, group.row, group.rows);
    for_each_slice(group, [&](size_t s, int64_t first, int64_t rank) {
      const auto& slice = group.slices[s];
      if (slice.b.numel() > 0)
        multiply({.a = low.narrow(1, first, rank),
                  .b = slice.b,
                  .d = y.narrow(1, slice.column, slice.b.dim(0)),
                  .transpose_b = true,
                  .accumulate = true,
                  .alike = true});
    });
  }
  return out;
}

// Gradients of the slices' b, and that of input aᵀ, which is returned.
template <class Products>
Tensor slice_gradients(const Group& group, const Tensor& low, const Tensor& dy,
                       const std::vector<GradTarget>& targets) {
  const Tensor dlow = empty_like(dy, group.rows, group.a.dim(0));
  NarrowGradients op{dy.narrow(0, group.row, group.rows), {}};
  for_each_slice(group, [&](size_t s, int64_t first, int64_t rank) {
    const auto& slice = group.slices[s];
    op.slices.push_back({slice.column, slice.b, low.narrow(1, first, rank), dlow.narrow(1, first, rank),
                         targets[s], slice.scale});
  });
  Products::narrow(op);
  return dlow;
}

inline void forget(const GradTarget& target) {
  if (target.wanted() && !target.accumulate) target.buffer.fill_zero();
}

// x's gradient, or gate_up's. `x`: is made again, too, where it is defined.
template <class Products>
Tensor gradient_of_x(const LoraLinear& op, const Tensor& dy, std::vector<UpdatedProduct::Update> updates,
                     const Tensor& x) {
  const int64_t columns = (op.gate_up.defined() ? 2 : 1) * op.weight.dim(1);
  UpdatedProduct product{dy, op.weight, empty_like(dy, dy.dim(0), columns), false, {}, std::move(updates)};
  product.gate_up = op.gate_up;
  product.y = x;
  Products::multiply(product);
  return product.d;
}

template <class Products>
LoraLinear::Gradients backward(const LoraLinear& given, const std::vector<Tensor>& low, const Tensor& dy,
                               const LoraLinear::Targets& targets) {
  LoraLinear op = given;
  LoraLinear::Gradients grads{{}, std::vector<Tensor>(op.groups.size())};
  if (targets.bias.wanted()) add_row_sums(dy, targets.bias);
  std::vector<Tensor> dlows(op.groups.size());
  std::vector<UpdatedProduct::Update> updates;
  bool reads_x = false;
  for (size_t i = 0; i < op.groups.size(); ++i) {
    const Group& group = op.groups[i];
    const LoraLinear::GroupTargets& wanted = targets.groups[i];
    if (group.rows == 0) {
      forget(wanted.a);
      for (const GradTarget& b : wanted.b) forget(b);
      if (wanted.input) grads.inputs[i] = empty_like(dy, 0, op.weight.dim(1));
      continue;
    }
    const Tensor dlow = dlows[i] = slice_gradients<Products>(group, low[i], dy, wanted.b);
    reads_x = reads_x || (wanted.a.wanted() && !group.input.defined());
    if (wanted.input) {
      grads.inputs[i] = empty_like(dy, group.rows, op.weight.dim(1));
      multiply({.a = dlow, .b = group.a, .d = grads.inputs[i]});
    } else if (targets.x && !group.input.defined() && dlow.numel() > 0) {
      updates.push_back({group.row, 0, dlow, group.a});
    }
  }
  Tensor made_x;
  if (reads_x && !op.x.defined()) made_x = op.x = empty_like(dy, dy.dim(0), op.weight.dim(1));
  if (targets.x) grads.x = gradient_of_x<Products>(op, dy, std::move(updates), made_x);
  for (size_t i = 0; i < op.groups.size(); ++i)
    if (const GradTarget& a = targets.groups[i].a; a.wanted() && op.groups[i].rows > 0)
      multiply({.a = dlows[i],
                .b = rows_read(op, op.groups[i]),
                .d = a.buffer,
                .transpose_a = true,
                .accumulate = a.accumulate});
  return grads;
}

}  // namespace lora

template <class Products>
ops::Kernel<ops::LoraLinear> lora_linear_by(ops::Refusal (*accepts)(const ops::LoraLinear::Signature&,
                                                                    const HardwareFacts&)) {
  return {.hardware = hardware::kGpu,
          .accepts = accepts,
          .forward = lora::forward<Products>,
          .backward = lora::backward<Products>,
          .missing = refuse_without_cublaslt,
          .traits = {.reads_codes = are_few_rows, .swiglu = Products::kTakeSwiglu},
          .outline = {lora::forward<Products>, lora::backward<Products>}};
}

template <class Products>
ops::Kernel<ops::LoraLinear> invariant_lora_linear_by(
    ops::Refusal (*accepts)(const ops::LoraLinear::Signature&, const HardwareFacts&)) {
  return {.hardware = hardware::kGpu,
          .accepts = accepts,
          .forward = lora::forward_alike,
          .backward = lora::backward<Products>,
          .missing = refuse_without_cublaslt,
          .batch_invariant = true,
          .outline = {lora::forward_alike, lora::backward<Products>}};
}

}  // namespace temper::backends
