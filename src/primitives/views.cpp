#include "primitives/internal.h"

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
    Tensor dx = Tensor::zeros(x.shape(), grad.dtype());
    dx.narrow(dim, start, length).copy_from(grad);
    give(x, dx);
  });
}

Var concat_first(Tape& tape, const std::vector<Var>& parts) {
  if (parts.empty()) fail("concatenation of nothing");
  Shape shape = parts[0].shape();
  shape[0] = 0;
  std::vector<const Var*> inputs;
  for (const Var& part : parts) {
    shape[0] += part.shape()[0];
    inputs.push_back(&part);
  }
  Tensor out = Tensor::empty(shape, parts[0].dtype());
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
  const int last = a.value.ndim() - 1;
  const int64_t split = a.shape()[last], rest = b.shape()[last];
  Shape shape = a.shape();
  shape[last] += rest;
  Tensor out = Tensor::empty(shape, a.dtype());
  out.narrow(last, 0, split).copy_from(a.value);
  out.narrow(last, split, rest).copy_from(b.value);
  return tape.record(out, {&a, &b}, [a, b, last, split, rest](const Tensor& grad) {
    give(a, grad.narrow(last, 0, split).contiguous());
    give(b, grad.narrow(last, split, rest).contiguous());
  });
}

Var gather_rows(Tape& tape, const Var& table, const Tensor& ids) {
  const int64_t width = table.shape()[1];
  Tensor out = Tensor::empty({ids.numel(), width}, table.dtype());
  const auto rows = ids.values<int32_t>();
  for (size_t i = 0; i < rows.size(); ++i)
    out.narrow(0, static_cast<int64_t>(i), 1).copy_from(table.value.narrow(0, rows[i], 1));
  return tape.record(out, {&table}, [table, ids, width](const Tensor& grad) {
    const Tensor g = floats(grad);
    Tensor dtable = Tensor::zeros(table.shape(), DType::kF32);
    const auto rows = ids.values<int32_t>();
    for (size_t i = 0; i < rows.size(); ++i)
      for (int64_t c = 0; c < width; ++c)
        dtable.data<float>()[rows[i] * width + c] += g.data<float>()[static_cast<int64_t>(i) * width + c];
    give(table, dtable);
  });
}

Var take_last(Tape& tape, const Var& input, const Tensor& ids) {
  const Tensor x = floats(input.value);
  const int64_t width = x.dim(-1);
  Shape shape = x.shape();
  shape[shape.ndim() - 1] = 1;
  Tensor out = Tensor::empty(shape, DType::kF32);
  const auto columns = ids.values<int32_t>();
  for (size_t r = 0; r < columns.size(); ++r)
    out.data<float>()[r] = x.data<float>()[static_cast<int64_t>(r) * width + columns[r]];
  return tape.record(out.to(input.dtype()), {&input}, [input, ids, width](const Tensor& grad) {
    const Tensor g = floats(grad);
    Tensor dx = Tensor::zeros(input.shape(), DType::kF32);
    const auto columns = ids.values<int32_t>();
    for (size_t r = 0; r < columns.size(); ++r)
      dx.data<float>()[static_cast<int64_t>(r) * width + columns[r]] = g.data<float>()[r];
    give(input, dx);
  });
}

}  // namespace temper::primitives
