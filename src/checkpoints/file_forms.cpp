#include "checkpoints/file_forms.h"

#include <utility>

namespace temper::checkpoints {

namespace {

// Rows of experts as an expert's columns, and the other way round: the two are inverses of each other except
// for the order of the halves. [experts, a, b] becomes [experts, b, a], where the rows are cut into the
// halves' turns.
Tensor experts_from_file(const WeightSpec& spec, const Tensor& held) {
  const int64_t experts = spec.experts_in_files, rows = spec.shape[0] / experts;
  const int64_t columns = held.numel() / (experts * rows), halves = spec.alternating ? 2 : 1;
  return held.reshape({experts, columns, rows / halves, halves})
      .transpose(1, 3)
      .contiguous()
      .reshape(spec.shape);
}
Tensor experts_to_file(const WeightSpec& spec, const Tensor& rows) {
  const int64_t experts = spec.experts_in_files, each = spec.shape[0] / experts;
  const int64_t columns = rows.numel() / (experts * each), halves = spec.alternating ? 2 : 1;
  return rows.contiguous()
      .reshape({experts, halves, each / halves, columns})
      .transpose(1, 3)
      .contiguous()
      .reshape(shape_in_files(spec, rows.dim(0)));
}

}  // namespace

Shape stacked_in_files(const WeightSpec& spec, bool transposed) {
  const Shape& shape = spec.stacked_shape;
  return transposed ? Shape{shape[0], shape[2], shape[1]} : shape;
}

Tensor from_stacked(const WeightSpec& spec, const Tensor& held, bool transposed) {
  return (transposed ? held.transpose(1, 2).contiguous() : held).reshape(spec.shape);
}

Tensor to_stacked(const WeightSpec& spec, const Tensor& rows, bool transposed) {
  const Tensor stacked = rows.reshape(spec.stacked_shape);
  return transposed ? stacked.transpose(1, 2).contiguous() : stacked;
}

Shape shape_in_files(const WeightSpec& spec, int64_t rows) {
  Shape shape = spec.shape;
  shape[0] = rows;
  if (const int64_t experts = spec.experts_in_files; experts > 0)
    return shape.ndim() == 1 ? Shape{experts, rows / experts} : Shape{experts, shape[1], rows / experts};
  if (spec.transposed_rows > 1) return {rows / spec.transposed_rows, shape[1] * spec.transposed_rows};
  if (spec.transposed && spec.transposed_rows == 0) std::swap(shape[0], shape[1]);
  return shape;
}

Tensor from_file(const WeightSpec& spec, const Tensor& held) {
  if (spec.experts_in_files > 0) return experts_from_file(spec, held);
  if (spec.transposed_rows > 1)
    return held.reshape({held.numel() / spec.transposed_rows, spec.transposed_rows})
        .transpose(0, 1)
        .contiguous()
        .reshape(spec.shape);
  return spec.transposed && spec.transposed_rows == 0 ? held.transpose(0, 1) : held;
}

Tensor to_file(const WeightSpec& spec, const Tensor& rows) {
  if (spec.experts_in_files > 0) return experts_to_file(spec, rows);
  if (spec.transposed_rows > 1)
    return rows.contiguous()
        .reshape({spec.transposed_rows, rows.numel() / spec.transposed_rows})
        .transpose(0, 1)
        .contiguous()
        .reshape(shape_in_files(spec, rows.dim(0)));
  return spec.transposed && spec.transposed_rows == 0 ? rows.transpose(0, 1) : rows;
}

}  // namespace temper::checkpoints
