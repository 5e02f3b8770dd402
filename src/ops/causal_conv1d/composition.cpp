#include "ops/causal_conv1d/composition.h"

#include "ops/slot_rows.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

// A document behind its window, [width - 1 + tokens, channels], and the weight [channels, width], all
// float32 → [tokens, channels].
Var convolve(Tape& tape, const Var& x, const std::vector<Var>& columns) {
  const auto width = static_cast<int64_t>(columns.size()), tokens = x.shape()[0] - width + 1;
  Var sum;
  for (int64_t j = 0; j < width; ++j) {
    const Var term = p::mul(tape, p::narrow(tape, x, 0, j, tokens), columns[static_cast<size_t>(j)]);
    sum = j == 0 ? term : p::add(tape, sum, term);
  }
  return p::mul(tape, sum, p::sigmoid(tape, sum));
}

std::vector<Var> columns_of(Tape& tape, const Var& weight) {
  const int64_t channels = weight.shape()[0];
  std::vector<Var> columns =
      p::split(tape, p::cast(tape, weight, DType::kF32), 1, std::vector<int64_t>(weight.shape()[1], 1));
  for (Var& column : columns) column = p::reshape(tape, column, {channels});
  return columns;
}

Tensor zeros_like(const Tensor& like, const Shape& shape) {
  return Tensor::zeros(shape, DType::kF32, MemoryTag::kActivations, like.device());
}

}  // namespace

Convolved compose_causal_conv1d(Tape& tape, const Var& x, const Var& weight, const Var& initial,
                                const CausalConv1d& op, bool want_final) {
  const int64_t documents = op.documents.count(), channels = x.shape()[1], kept = weight.shape()[1] - 1;
  const std::vector<Var> columns = columns_of(tape, weight);
  std::vector<int64_t> lengths;
  for (int64_t d = 0; d < documents; ++d) lengths.push_back(op.documents.length(d));
  const std::vector<Var> inputs = p::split(tape, p::cast(tape, x, DType::kF32), 0, lengths);
  std::vector<Var> given, parts, windows;
  if (initial.value.defined())
    given = p::split(tape, p::cast(tape, initial, DType::kF32), 0, std::vector<int64_t>(documents, 1));
  for (int64_t d = 0; d < documents; ++d) {
    const auto at = static_cast<size_t>(d);
    const int64_t before = op.documents.continues(d);
    const Var window = before >= 0     ? windows[static_cast<size_t>(before)]
                       : given.empty() ? tape.constant(zeros_like(x.value, {kept, channels}))
                                       : p::reshape(tape, given[at], {kept, channels});
    const Var whole = p::concat_first(tape, {window, inputs[at]});
    windows.push_back(p::narrow(tape, whole, 0, lengths[at], kept));
    parts.push_back(convolve(tape, whole, columns));
  }
  Convolved out{p::cast(tape, p::concat_first(tape, parts), x.dtype()), {}};
  if (!want_final) return out;
  for (Var& window : windows) window = p::reshape(tape, window, {1, kept, channels});
  out.final_window = p::cast(tape, p::concat_first(tape, windows), x.dtype());
  return out;
}

Tensor compose_causal_conv1d_update(const CausalConv1dUpdate& op) {
  Tape tape(false);
  const int64_t sequences = op.x.dim(0), channels = op.x.dim(1), width = op.weight.dim(1);
  const auto rows = [&](const Tensor& x, int64_t s, int64_t count) {
    return p::cast(tape, tape.constant(x.narrow(0, s, 1).contiguous().reshape({count, channels})),
                   DType::kF32);
  };
  const std::vector<Var> columns = columns_of(tape, tape.constant(op.weight));
  const SlotRows windows(op.window, op.slots);
  const Tensor y = Tensor::empty({sequences, channels}, op.x.dtype(), MemoryTag::kActivations, op.x.device());
  for (int64_t s = 0; s < sequences; ++s) {
    const Var whole = p::concat_first(tape, {rows(windows.rows(), s, width - 1), rows(op.x, s, 1)});
    y.narrow(0, s, 1).copy_from(convolve(tape, whole, columns).value);
    windows.rows().narrow(0, s, 1).copy_from(
        whole.value.narrow(0, 1, width - 1).reshape({1, width - 1, channels}));
  }
  windows.store();
  return y;
}

}  // namespace temper::ops
