#include "checkpoints/file_forms.h"

#include <utility>

namespace temper::checkpoints {

Shape shape_in_files(const WeightSpec& spec, int64_t rows) {
  Shape shape = spec.shape;
  shape[0] = rows;
  if (spec.transposed_rows > 1) return {rows / spec.transposed_rows, shape[1] * spec.transposed_rows};
  if (spec.transposed && spec.transposed_rows == 0) std::swap(shape[0], shape[1]);
  return shape;
}

Tensor from_file(const WeightSpec& spec, const Tensor& held) {
  if (spec.transposed_rows > 1)
    return held.reshape({held.numel() / spec.transposed_rows, spec.transposed_rows})
        .transpose(0, 1)
        .contiguous()
        .reshape(spec.shape);
  return spec.transposed && spec.transposed_rows == 0 ? held.transpose(0, 1) : held;
}

Tensor to_file(const WeightSpec& spec, const Tensor& rows) {
  if (spec.transposed_rows > 1)
    return rows.contiguous()
        .reshape({spec.transposed_rows, rows.numel() / spec.transposed_rows})
        .transpose(0, 1)
        .contiguous()
        .reshape(shape_in_files(spec, rows.dim(0)));
  return spec.transposed && spec.transposed_rows == 0 ? rows.transpose(0, 1) : rows;
}

}  // namespace temper::checkpoints
