#include "ops/embedding/embedding.h"

#include "autograd/later_gradients.h"
#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/op_info.h"
#include "ops/op_listener.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

// Ids of other ranks take the first row, of which nothing is kept.
Var compose(Tape& tape, const Tensor& ids, const Var& table, int64_t first) {
  const int64_t rows = table.shape()[0];
  const Tensor seen = ids.on({}), own = Tensor::zeros(ids.shape(), DType::kI32),
               kept = Tensor::zeros({ids.numel(), 1}, DType::kF32);
  bool all = true;
  for (int64_t t = 0; t < ids.numel(); ++t) {
    const int64_t row = seen.data<int32_t>()[t] - first;
    if (row < 0 || row >= rows) {
      all = false;
      continue;
    }
    own.data<int32_t>()[t] = static_cast<int32_t>(row);
    kept.data<float>()[t] = 1;
  }
  const Var y = primitives::gather_rows(tape, table, {own, rows, table.requires_grad()});
  return all ? y : primitives::mul(tape, y, tape.constant(kept.to(y.dtype()).on(y.value.device())));
}

}  // namespace

Var embedding(Tape& tape, Bound<Embedding> bound, const Tensor& ids, const Var& table,
              std::optional<int64_t> first) {
  check_ndim(Embedding::kName, "ids", ids, 1);
  check_dtype(Embedding::kName, "ids", ids, DType::kI32);
  check_ndim(Embedding::kName, "table", table.value, 2);
  check_float(Embedding::kName, "table", table.value);
  check_contiguous(Embedding::kName, "table", table.value);
  for (const int32_t id : visible_ids(ids))
    if (!first && (id < 0 || id >= table.shape()[0]))
      fail("[embedding] token id {} is outside the vocabulary [0, {})", id, table.shape()[0]);

  const trace::Span span(Embedding::kName, [&] {
    const auto row = static_cast<double>(ids.numel() * table.shape()[1]);
    const auto width = static_cast<double>(size_of(table.dtype()));
    return trace::OpWork{{0, 2 * row * width}, {0, row * (width + 2 * 4)}};  // the gradient is float32
  });
  const auto& kernel = *bound;
  if (kernel.compose != nullptr)
    return observed(Embedding::kName, table.value, kernel.compose(tape, ids, table, first.value_or(0)));
  const Embedding op{ids, table.value, first.value_or(0)};
  const Var result =
      tape.record(kernel.forward(op), {&table}, [op, slot = table.slot, &kernel](const Tensor& dy) {
        LaterGradients::leave_or_compute(LaterGradients::of(slot), [op, slot, &kernel, dy = dy.contiguous()] {
          kernel.backward(op, dy, slot->target(op.table));
        });
      });
  return observed(Embedding::kName, table.value, result);
}

namespace {

Tensor outline_forward(const Embedding& op) {
  return empty_like(op.table, {op.ids.numel(), op.table.dim(1)});
}

void outline_backward(const Embedding&, const Tensor&, const GradTarget&) {}

}  // namespace

Probe embedding_probe;

void register_embedding() {
  register_op<Embedding>(compose, embedding_probe, {outline_forward, outline_backward},
                         {.cpu = {{{"simd", "simd"}}}, .gpu = {{{"cuda", "cuda"}}}});
}

}  // namespace temper::ops
