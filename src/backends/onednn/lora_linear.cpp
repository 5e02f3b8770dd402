#include "ops/lora_linear/lora_linear.h"
#include "backends/floats.h"
#include "backends/onednn/onednn.h"
#include "backends/onednn/product.h"

namespace temper::backends {
namespace {

using ops::LoraLinear;
using Group = LoraLinear::Group;

// What is narrow, of Σ ranks, has the rows (tokens) outside as everything else: [rows, Σ ranks]. So the wide
// operands of narrow products, which cost as much to pack as to multiply, are read where they lie.

Tensor rows_read(const LoraLinear& op, const Group& group) {
  return group.input.defined() ? group.input : op.x.narrow(0, group.row, group.rows);
}

// Each slice's columns of a narrow tensor times its scale.
void scale_slices(const Group& group, const Tensor& narrow) {
  if (only_counts(narrow.device())) return;
  visit_wide(narrow.dtype(), [&]<class T>() {
    T* at = narrow.data<T>();
    for (int64_t row = 0; row < narrow.dim(0); ++row)
      for (const auto& slice : group.slices)
        for (const T* end = at + slice.b.dim(1); at < end; ++at)
          *at = T(static_cast<float>(*at) * slice.scale);
  });
}

Tensor empty_narrow(const Group& group) { return ops::empty_like(group.a, {group.rows, group.a.dim(0)}); }

Tensor forward_low(const LoraLinear& op, const Group& group) {
  const Tensor low = empty_narrow(group);
  multiply(
      Product{.a = rows_of(rows_read(op, group)), .b = transpose_of(group.a), .k = group.a.dim(1), .c = low});
  scale_slices(group, low);
  return low;
}

// The updates as terms of the product that writes y, which then passes through memory once.
std::vector<Product::Term> forward_terms(const LoraLinear& op, const std::vector<Tensor>& low) {
  std::vector<Product::Term> terms;
  for (size_t i = 0; i < op.groups.size(); ++i) {
    const Group& group = op.groups[i];
    int64_t first = 0;
    for (const auto& slice : group.slices) {
      const int64_t rank = slice.b.dim(1);
      terms.push_back({.a = rows_of(low[i].narrow(1, first, rank)),
                       .b = transpose_of(slice.b),
                       .row = group.row,
                       .rows = group.rows,
                       .column = slice.column,
                       .columns = slice.b.dim(0),
                       .k = rank});
      first += rank;
    }
  }
  return terms;
}

// For few rows, whose plain product reads every weight once and has no tiles.
void add_updates(const Group& group, const Tensor& low, const Tensor& y) {
  int64_t first = 0;
  for (const auto& slice : group.slices) {
    const int64_t rank = slice.b.dim(1), width = slice.b.dim(0);
    const Tensor update = linear_kernel().forward({low.narrow(1, first, rank).contiguous(), slice.b, {}});
    visit_wide(y.dtype(), [&]<class T>() {
      for (int64_t row = 0; row < group.rows; ++row) {
        T* out = y.data<T>() + (group.row + row) * y.dim(1) + slice.column;
        const T* in = update.data<T>() + row * width;
        for (int64_t i = 0; i < width; ++i)
          out[i] = T(static_cast<float>(out[i]) + static_cast<float>(in[i]));
      }
    });
    first += rank;
  }
}

LoraLinear::Output forward_few(const LoraLinear& op) {
  LoraLinear::Output out{linear_kernel().forward({op.x, op.weight, op.bias, op.scales}), {}};
  for (const Group& group : op.groups) {
    out.low.push_back(linear_kernel().forward({rows_read(op, group), group.a, {}}));
    scale_slices(group, out.low.back());
    add_updates(group, out.low.back(), out.y);
  }
  return out;
}

LoraLinear::Output forward_alike(const LoraLinear& op) {
  const int64_t rows = op.x.dim(0), out_size = op.weight.dim(0);
  LoraLinear::Output out{ops::empty_like(op.x, {rows, out_size}), {}};
  for (const Group& group : op.groups) out.low.push_back(forward_low(op, group));
  multiply(Product{.a = rows_of(op.x),
                   .b = transpose_of(op.weight),
                   .k = op.x.dim(1),
                   .c = out.y,
                   .bias = op.bias,
                   .terms = forward_terms(op, out.low),
                   .scales = op.scales});
  return out;
}

LoraLinear::Output forward(const LoraLinear& op) {
  const bool few = takes_few_rows(op.x, op.weight) && !only_counts(op.x.device());
  return few ? forward_few(op) : forward_alike(op);
}

// The part of dy that a slice updated.
Tensor part_of(const Tensor& dy, const Group& group, const Group::Slice& slice) {
  return dy.narrow(0, group.row, group.rows).narrow(1, slice.column, slice.b.dim(0));
}

// Of input aᵀ: each slice's columns of dy times its b, scaled.
Tensor low_gradient(const Group& group, const Tensor& dy) {
  const Tensor dlow = empty_narrow(group);
  int64_t first = 0;
  for (const auto& slice : group.slices) {
    const int64_t rank = slice.b.dim(1);
    multiply(Product{.a = rows_of(part_of(dy, group, slice)),
                     .b = rows_of(slice.b),
                     .k = slice.b.dim(0),
                     .c = dlow.narrow(1, first, rank)});
    first += rank;
  }
  scale_slices(group, dlow);
  return dlow;
}

// target += transposedᵀ, or = where nothing is there yet.
void put_transposed(const Tensor& transposed, const GradTarget& target) {
  if (only_counts(transposed.device())) return;
  const int64_t rows = target.buffer.dim(0), columns = target.buffer.dim(1);
  const float* in = transposed.data<float>();
  visit_wide(target.buffer.dtype(), [&]<class T>() {
    T* out = target.buffer.data<T>();
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < columns; ++i, ++out)
        *out = T((target.accumulate ? static_cast<float>(*out) : 0.0f) + in[i * rows + row]);
  });
}

void slice_gradients(const Group& group, const Tensor& low, const Tensor& dy,
                     const std::vector<GradTarget>& targets) {
  int64_t first = 0;
  for (size_t s = 0; s < group.slices.size(); ++s) {
    const auto& slice = group.slices[s];
    const int64_t rank = slice.b.dim(1), width = slice.b.dim(0);
    if (targets[s].wanted()) {
      const Tensor transposed = Tensor::empty({rank, width}, DType::kF32, MemoryTag::kWorkspace, dy.device());
      multiply(Product{.a = transpose_of(low.narrow(1, first, rank)),
                       .b = rows_of(part_of(dy, group, slice)),
                       .k = group.rows,
                       .c = transposed});
      put_transposed(transposed, targets[s]);
    }
    first += rank;
  }
}

void a_gradient(const Tensor& input, const Tensor& dlow, const GradTarget& target) {
  multiply(Product{.a = transpose_of(dlow),
                   .b = rows_of(input),
                   .k = input.dim(0),
                   .c = target.buffer,
                   .accumulate = target.accumulate});
}

Tensor input_gradient(const Group& group, const Tensor& dlow) {
  const Tensor dx = ops::empty_like(dlow, {group.rows, group.a.dim(1)});
  multiply(Product{.a = rows_of(dlow), .b = rows_of(group.a), .k = group.a.dim(0), .c = dx});
  return dx;
}

LoraLinear::Gradients backward(const LoraLinear& op, const std::vector<Tensor>& low, const Tensor& dy,
                               const LoraLinear::Targets& targets) {
  if (targets.bias.wanted())
    linear_kernel().backward({op.x, op.weight, op.bias}, dy, false, {}, targets.bias);
  LoraLinear::Gradients grads{{}, std::vector<Tensor>(op.groups.size())};
  std::vector<Tensor> kept;
  std::vector<Product::Term> terms;
  for (size_t i = 0; i < op.groups.size(); ++i) {
    const Group& group = op.groups[i];
    const LoraLinear::GroupTargets& wanted = targets.groups[i];
    slice_gradients(group, low[i], dy, wanted.b);
    kept.push_back(low_gradient(group, dy));
    if (wanted.a.wanted()) a_gradient(rows_read(op, group), kept.back(), wanted.a);
    if (group.input.defined()) {
      if (wanted.input) grads.inputs[i] = input_gradient(group, kept.back());
      continue;
    }
    terms.push_back({.a = rows_of(kept.back()),
                     .b = rows_of(group.a),
                     .row = group.row,
                     .rows = group.rows,
                     .columns = group.a.dim(1),
                     .k = group.a.dim(0)});
  }
  if (!targets.x) return grads;
  grads.x = ops::empty_like(dy, {dy.dim(0), op.weight.dim(1)});
  multiply(Product{.a = rows_of(dy),
                   .b = rows_of(op.weight),
                   .k = op.weight.dim(0),
                   .c = grads.x,
                   .terms = std::move(terms)});
  return grads;
}

}  // namespace

void register_onednn_lora_linear() {
  ops::kernels<LoraLinear>().add("onednn", {.accepts = refuse_float16,
                                            .forward = forward,
                                            .backward = backward,
                                            .traits = {.reads_codes = takes_few_rows},
                                            .outline = {forward, backward}});
  ops::kernels<LoraLinear>().add("onednn_invariant", {.accepts = refuse_but_float32,
                                                      .forward = forward_alike,
                                                      .backward = backward,
                                                      .batch_invariant = sums_alike(DType::kF32),
                                                      .outline = {forward_alike, backward}});
}

}  // namespace temper::backends
