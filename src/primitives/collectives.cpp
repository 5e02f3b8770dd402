#include "primitives/collectives.h"

namespace temper::primitives {
namespace {

Shape with_rows(Shape shape, int64_t rows) {
  shape[0] = rows;
  return shape;
}

int64_t rows_of_each(int64_t rows, const collectives::Group& ranks) {
  return (rows + ranks.size() - 1) / ranks.size();
}

// The sum of all ranks' rows, of which this one gets its part.
Tensor scattered(const Tensor& x, collectives::Group& ranks) {
  const int64_t rows = x.dim(0), own = rows_of_each(rows, ranks), all = own * ranks.size();
  if (rows == all) return ranks.reduce_scatter("tokens of the stream", x.contiguous());
  const Tensor whole = Tensor::empty(with_rows(x.shape(), all), x.dtype(), MemoryTag::kWorkspace, x.device());
  whole.narrow(0, 0, rows).copy_from(x);
  whole.narrow(0, rows, all - rows).fill_zero();
  return ranks.reduce_scatter("tokens of the stream", whole);
}

Tensor gathered(const Tensor& x, collectives::Group& ranks, int64_t rows) {
  const Tensor all = ranks.all_gather("tokens of all ranks", x.contiguous());
  return all.dim(0) == rows ? all : all.narrow(0, 0, rows);
}

Tensor summed(const Tensor& x, collectives::Group& ranks) {
  const Tensor sum = Tensor::empty(x.shape(), x.dtype(), MemoryTag::kActivations, x.device());
  sum.copy_from(x);
  ranks.all_reduce("parts of a sum", sum);
  return sum;
}

}  // namespace

Var gather_rows_of_ranks(Tape& tape, const Var& x, collectives::Group& ranks, int64_t rows) {
  return tape.record(gathered(x.value, ranks, rows), {&x},
                     [slot = x.slot, &ranks](const Tensor& grad) { slot->add(scattered(grad, ranks)); });
}

Var scatter_sum_of_ranks(Tape& tape, const Var& x, collectives::Group& ranks) {
  const int64_t rows = x.shape()[0];
  return tape.record(scattered(x.value, ranks), {&x}, [slot = x.slot, rows, &ranks](const Tensor& grad) {
    slot->add(gathered(grad, ranks, rows));
  });
}

Var read_by_ranks(Tape& tape, const Var& x, collectives::Group& ranks) {
  return tape.record(x.value, {&x},
                     [slot = x.slot, &ranks](const Tensor& grad) { slot->add(summed(grad, ranks)); });
}

Var sum_of_ranks(Tape& tape, const Var& x, collectives::Group& ranks) {
  return tape.record(summed(x.value, ranks), {&x}, [slot = x.slot](const Tensor& grad) { slot->add(grad); });
}

Var columns_of_ranks(Tape& tape, const Var& x, collectives::Group& ranks) {
  const Tensor all = ranks.all_gather("columns of all ranks", x.value.contiguous());
  const int64_t rows = x.shape()[0], width = x.shape()[1];
  const Tensor wide =
      Tensor::empty({rows, ranks.size() * width}, all.dtype(), MemoryTag::kActivations, all.device());
  for (int rank = 0; rank < ranks.size(); ++rank)
    wide.narrow(1, rank * width, width).copy_from(all.narrow(0, rank * rows, rows));
  return tape.record(wide, {&x}, [slot = x.slot, first = ranks.rank() * width, width](const Tensor& grad) {
    slot->add(grad.narrow(1, first, width).contiguous());
  });
}

}  // namespace temper::primitives
