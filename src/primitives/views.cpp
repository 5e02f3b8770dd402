#include <algorithm>
#include <numeric>

#include "primitives/internal.h"
#include "tensor/host_inputs.h"

namespace temper::primitives {

Var reshape(Tape& tape, const Var& x, Shape shape) {
  return tape.record(x.value.contiguous().reshape(shape), {&x},
                     [x](const Tensor& grad) { give(x, grad.contiguous().reshape(x.shape())); });
}

Var transpose(Tape& tape, const Var& x, int a, int b) {
  return tape.record(x.value.transpose(a, b), {&x},
                     [x, a, b](const Tensor& grad) { give(x, grad.transpose(a, b).contiguous()); });
}

Var narrow(Tape& tape, const Var& x, int dim, int64_t start, int64_t length) {
  return tape.record(x.value.narrow(dim, start, length), {&x}, [x, dim, start, length](const Tensor& grad) {
    const Tensor dx = empty(x.shape(), grad.dtype(), grad.device());
    dx.fill_zero();
    dx.narrow(dim, start, length).copy_from(grad);
    give(x, dx);
  });
}

std::vector<Var> split(Tape& tape, const Var& x, int dim, const std::vector<int64_t>& counts) {
  std::vector<Tensor> pieces;
  int64_t begin = 0;
  for (const int64_t count : counts) {
    pieces.push_back(x.value.narrow(dim, begin, count));
    begin += count;
  }
  invariant(begin == x.shape()[dim], "all of it is split");
  // Of x nothing is kept, as whoever reads a piece may need little of it.
  const auto backward = [slot = x.slot, shape = x.shape(), dtype = x.dtype(), device = x.value.device(), dim,
                         counts](const std::vector<Tensor>& grads) {
    const Tensor dx = Tensor::empty(shape, dtype, MemoryTag::kActivations, device);
    if (std::any_of(grads.begin(), grads.end(), [](const Tensor& grad) { return !grad.defined(); }))
      dx.fill_zero();
    int64_t first = 0;
    for (size_t i = 0; i < counts.size(); first += counts[i++])
      if (grads[i].defined()) dx.narrow(dim, first, counts[i]).copy_from(grads[i]);
    slot->add(dx);
  };
  return tape.record(std::move(pieces), {&x}, backward);
}

Var concat_first(Tape& tape, const std::vector<Var>& parts) {
  if (parts.empty()) fail("concatenation of nothing");
  for (const Var& part : parts) check_alike(parts[0], part);
  Shape shape = parts[0].shape();
  shape[0] = 0;
  std::vector<const Var*> inputs;
  for (const Var& part : parts) {
    shape[0] += part.shape()[0];
    inputs.push_back(&part);
  }
  const Tensor out = empty(shape, parts[0].dtype(), parts[0].value.device());
  int64_t start = 0;
  for (const Var& part : parts) {
    out.narrow(0, start, part.shape()[0]).copy_from(part.value);
    start += part.shape()[0];
  }
  return tape.record(out, inputs, [parts](const Tensor& grad) {
    int64_t at = 0;
    for (const Var& part : parts) {
      give(part, grad.narrow(0, at, part.shape()[0]).contiguous());
      at += part.shape()[0];
    }
  });
}

Var concat_last(Tape& tape, const Var& a, const Var& b) {
  check_alike(a, b);
  const int last = a.value.ndim() - 1;
  const int64_t split = a.shape()[last], rest = b.shape()[last];
  Shape shape = a.shape();
  shape[last] += rest;
  const Tensor out = empty(shape, a.dtype(), a.value.device());
  out.narrow(last, 0, split).copy_from(a.value);
  out.narrow(last, split, rest).copy_from(b.value);
  return tape.record(out, {&a, &b}, [a, b, last, split, rest](const Tensor& grad) {
    give(a, grad.narrow(last, 0, split).contiguous());
    give(b, grad.narrow(last, split, rest).contiguous());
  });
}

ChosenRows::ChosenRows(const Tensor& chosen, int64_t rows, bool way_back) : rows(rows), ids(chosen.on({})) {
  const auto list = ids.values<int32_t>();
  for (const int32_t id : list)
    if (id < 0 || id >= rows) fail("row {} of {}", id, rows);
  if (!way_back) return;
  starts = Tensor::zeros({rows + 1}, DType::kI32, MemoryTag::kData);
  int32_t* const ends = starts.data<int32_t>() + 1;
  for (const int32_t id : list) ++ends[id];
  std::partial_sum(ends, ends + rows, ends);
  places = Tensor::empty(ids.shape(), DType::kI32, MemoryTag::kData);
  std::vector<int32_t> next(starts.data<int32_t>(), ends + rows);
  for (size_t i = 0; i < list.size(); ++i)
    places.data<int32_t>()[next[static_cast<size_t>(list[i])]++] = static_cast<int32_t>(i);
}

Var gather_rows(Tape& tape, const Var& x, const ChosenRows& chosen) {
  const Device device = x.value.device();
  if (x.shape()[0] != chosen.rows) fail("rows of {} in all, of {}", chosen.rows, to_string(x.shape()));
  invariant(!x.requires_grad() || chosen.starts.defined(), "rows with a gradient know the way back");
  Shape shape = x.shape();
  shape[0] = chosen.ids.numel();
  const Tensor from = x.value.is_contiguous_from(1) ? x.value : x.value.contiguous();
  const Tensor out = empty(shape, x.dtype(), device);
  const auto sum = primitive_functions(device).sum_listed_rows;
  sum(from, {}, from_host(chosen.ids, device), out);
  return tape.record(out, {&x}, [slot = x.slot, shape = x.shape(), chosen, sum](const Tensor& grad) {
    const Device there = grad.device();
    const Tensor dx = empty(shape, slot->persistent() ? DType::kF32 : grad.dtype(), there);
    sum(grad.to(dx.dtype()).contiguous(), from_host(chosen.starts, there), from_host(chosen.places, there),
        dx);
    slot->add(dx);
  });
}

Var sum_rows(Tape& tape, const Var& x, const ChosenRows& chosen) {
  const Device device = x.value.device();
  if (x.shape()[0] != chosen.ids.numel())
    fail("{} rows are chosen, of {}", chosen.ids.numel(), to_string(x.shape()));
  invariant(chosen.starts.defined(), "rows are added up on the way back");
  Shape shape = x.shape();
  shape[0] = chosen.rows;
  const Tensor out = empty(shape, x.dtype(), device);
  const auto sum = primitive_functions(device).sum_listed_rows;
  sum(x.value.contiguous(), from_host(chosen.starts, device), from_host(chosen.places, device), out);
  return tape.record(out, {&x}, [slot = x.slot, shape = x.shape(), chosen, sum](const Tensor& grad) {
    const Tensor dx = empty(shape, grad.dtype(), grad.device());
    sum(grad.contiguous(), {}, from_host(chosen.ids, grad.device()), dx);
    slot->add(dx);
  });
}

namespace {

// Of a tensor of this shape, whose rows have k columns each: k.
int64_t columns_of_row(const Tensor& ids, const Shape& shape) {
  const int64_t width = shape[shape.ndim() - 1], rows = width == 0 ? 0 : shape.numel() / width;
  if (rows == 0 ? ids.numel() != 0 : ids.numel() % rows != 0 || ids.numel() == 0)
    fail("{} columns taken from {}", ids.numel(), to_string(shape));
  const Tensor seen = ids.on({});
  for (const int32_t column : seen.values<int32_t>())
    if (column < 0 || column >= width) fail("column {} of {}", column, to_string(shape));
  return rows == 0 ? 1 : ids.numel() / rows;
}

}  // namespace

Var take_last(Tape& tape, const Var& input, const Tensor& ids) {
  const Tensor x = floats(input.value), there = ids.on(x.device());
  Shape shape = x.shape();
  shape[shape.ndim() - 1] = columns_of_row(ids, x.shape());
  const Tensor out = empty_floats(shape, x.device());
  primitive_functions(x.device()).take_last(x, there, out);
  return tape.record(out.to(input.dtype()), {&input}, [input, there](const Tensor& grad) {
    const Tensor dx = empty_floats(input.shape(), grad.device());
    primitive_functions(grad.device()).take_last_gradient(floats(grad), there, dx);
    give(input, dx);
  });
}

Tensor put_last(const Tensor& values, const Tensor& ids, int64_t width) {
  Shape shape = values.shape();
  shape[shape.ndim() - 1] = width;
  columns_of_row(ids, shape);
  invariant(ids.numel() == values.numel(), "each value has a column");
  const Tensor out = empty_floats(shape, values.device());
  primitive_functions(out.device()).take_last_gradient(floats(values), ids.on(out.device()), out);
  return out;
}

}  // namespace temper::primitives
