#include <algorithm>

#include "backends/floats.h"
#include "backends/onednn/blocks.h"
#include "backends/onednn/onednn.h"
#include "backends/onednn/product.h"
#include "base/threads.h"

namespace temper::backends {
namespace {

using ops::LoraLinear;
using Group = LoraLinear::Group;

Tensor rows_read(const LoraLinear& op, const Group& group) {
  return group.input.defined() ? group.input : op.x.narrow(0, group.row, group.rows);
}

// The updates as terms of the product that writes y, which then passes through memory once.
std::vector<Product::Term> forward_terms(const LoraLinear& op, const std::vector<Tensor>& scaled) {
  std::vector<Product::Term> terms;
  for (size_t i = 0; i < op.groups.size(); ++i) {
    const Group& group = op.groups[i];
    int64_t first = 0;
    for (const auto& slice : group.slices) {
      const int64_t rank = slice.b.dim(1);
      terms.push_back({.a = rows_of(scaled[i].narrow(1, first, rank)),
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

Tensor plain_linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}) {
  return linear_kernel().forward({x, weight, bias});
}

// For few rows, whose plain product reads every weight once and has no tiles.
void add_updates(const Group& group, const Tensor& scaled, const Tensor& y) {
  int64_t first = 0;
  for (const auto& slice : group.slices) {
    const int64_t rank = slice.b.dim(1), width = slice.b.dim(0);
    const Tensor update = plain_linear(scaled.narrow(1, first, rank).contiguous(), slice.b);
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

LoraLinear::Output forward(const LoraLinear& op) {
  LoraLinear::Output out;
  std::vector<Tensor> scaled;
  for (const Group& group : op.groups) {
    out.low.push_back(plain_linear(rows_read(op, group), group.a));
    scaled.push_back(ops::scaled_low(group, out.low.back()));
  }
  const int64_t rows = op.x.dim(0), in = op.x.dim(1), out_size = op.weight.dim(0);
  if (rows <= kFewLinearRows) {
    out.y = plain_linear(op.x, op.weight, op.bias);
    for (size_t i = 0; i < op.groups.size(); ++i) add_updates(op.groups[i], scaled[i], out.y);
    return out;
  }
  out.y = Tensor::empty({rows, out_size}, op.x.dtype());
  multiply(Product{.a = rows_of(op.x),
                   .b = transpose_of(op.weight),
                   .m = rows,
                   .n = out_size,
                   .k = in,
                   .c = out.y,
                   .bias = op.bias,
                   .terms = forward_terms(op, scaled)});
  return out;
}

// d(input aᵀ) of one group: each slice's columns of dy times its b, scaled.
Tensor low_gradient(const Group& group, const Tensor& dy) {
  const Tensor low = Tensor::empty({group.rows, group.a.dim(0)}, dy.dtype(), MemoryTag::kWorkspace);
  int64_t first = 0;
  for (const auto& slice : group.slices) {
    const int64_t rank = slice.b.dim(1), width = slice.b.dim(0);
    multiply(Product{.a = rows_of(dy.narrow(0, group.row, group.rows).narrow(1, slice.column, width)),
                     .b = rows_of(slice.b),
                     .m = group.rows,
                     .n = rank,
                     .k = width,
                     .c = low.narrow(1, first, rank),
                     .bias = {}});
    first += rank;
  }
  return ops::scaled_low(group, low);
}

Tensor input_gradient(const Group& group, const Tensor& low_gradient) {
  const Tensor dx = Tensor::empty({group.rows, group.a.dim(1)}, low_gradient.dtype());
  multiply(Product{.a = rows_of(low_gradient),
                   .b = rows_of(group.a),
                   .m = group.rows,
                   .n = group.a.dim(1),
                   .k = group.a.dim(0),
                   .c = dx,
                   .bias = {}});
  return dx;
}

void accumulate(const Matrix& a, const Matrix& b, int64_t rows, const GradTarget& target) {
  multiply(Product{.a = a,
                   .b = b,
                   .m = target.buffer.dim(0),
                   .n = target.buffer.dim(1),
                   .k = rows,
                   .c = target.buffer,
                   .bias = {},
                   .accumulate = target.accumulate});
}

void slice_gradients(const Group& group, const Tensor& low, const Tensor& dy,
                     const LoraLinear::GroupTargets& targets) {
  const Tensor scaled = ops::scaled_low(group, low);
  int64_t first = 0;
  for (size_t s = 0; s < group.slices.size(); ++s) {
    const auto& slice = group.slices[s];
    const int64_t rank = slice.b.dim(1);
    if (targets.b[s].wanted())
      accumulate(transpose_of(dy.narrow(0, group.row, group.rows).narrow(1, slice.column, slice.b.dim(0))),
                 rows_of(scaled.narrow(1, first, rank)), group.rows, targets.b[s]);
    first += rank;
  }
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
    slice_gradients(group, low[i], dy, targets.groups[i]);
    kept.push_back(low_gradient(group, dy));
    if (targets.groups[i].a.wanted())
      accumulate(transpose_of(kept.back()), rows_of(rows_read(op, group)), group.rows, targets.groups[i].a);
    if (!group.input.defined())
      terms.push_back({.a = rows_of(kept.back()),
                       .b = rows_of(group.a),
                       .row = group.row,
                       .rows = group.rows,
                       .columns = op.x.dim(1),
                       .k = group.a.dim(0)});
    else if (targets.groups[i].input)
      grads.inputs[i] = input_gradient(group, kept.back());
  }
  if (!targets.x) return grads;
  grads.x = Tensor::empty(op.x.shape(), op.x.dtype());
  multiply(Product{.a = rows_of(dy),
                   .b = rows_of(op.weight),
                   .m = op.x.dim(0),
                   .n = op.x.dim(1),
                   .k = op.weight.dim(0),
                   .c = grads.x,
                   .bias = {},
                   .terms = std::move(terms)});
  return grads;
}

}  // namespace

ops::Kernel<LoraLinear> lora_linear_kernel() {
  return {.accepts = refuse_float16, .forward = forward, .backward = backward};
}

}  // namespace temper::backends
