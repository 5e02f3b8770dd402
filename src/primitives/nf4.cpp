#include "primitives/nf4.h"

#include <numeric>

#include "base/error.h"
#include "base/trace.h"
#include "primitives/device_functions.h"

namespace temper::primitives {
namespace {

// From one matrix's first element to the next one's: whole scales.
int64_t elements_of(int64_t rows, int64_t columns, bool double_quantization) {
  const int64_t of_scale = quant::kNf4Block * (double_quantization ? quant::kNf4ScaleBlock : 1);
  return (rows * columns + of_scale - 1) / of_scale * of_scale;
}

}  // namespace

Nf4Matrix empty_nf4(const std::vector<int64_t>& rows, int64_t columns, bool double_quantization,
                    Device device) {
  std::vector<int64_t> starts;
  int64_t elements = 0;
  for (const int64_t count : rows) {
    for (int64_t row = 0; row < count; ++row) starts.push_back(elements + row * columns);
    elements += elements_of(count, columns, double_quantization);
  }
  const auto all = static_cast<int64_t>(starts.size()), blocks = elements / quant::kNf4Block;
  const auto empty = [&](const Shape& shape, DType dtype) {
    return Tensor::empty(shape, dtype, MemoryTag::kWeights, device);
  };
  Nf4Matrix matrix;
  matrix.codes = empty({all, columns / 2}, DType::kU8);
  matrix.scales = empty({double_quantization ? blocks / quant::kNf4ScaleBlock : blocks}, DType::kF32);
  matrix.starts = empty({all}, DType::kI64);
  if (!only_counts(device)) matrix.starts.copy_from(Tensor::from(starts, MemoryTag::kWorkspace));
  if (double_quantization) {
    matrix.scale_codes = empty({blocks}, DType::kU8);
    matrix.offsets = empty({all}, DType::kF32);
  }
  return matrix;
}

void set_nf4(const Nf4Matrix& matrix, int64_t first, const quant::Nf4& encoded) {
  invariant(encoded.is_double() == matrix.is_double(), "codes fit the matrix that keeps them");
  const Tensor at = matrix.starts.narrow(0, first, 1).on({});  // what empty_nf4() put there
  const int64_t block = *at.data<int64_t>() / quant::kNf4Block;
  const auto set = [](const Tensor& to, int64_t from, const Tensor& values) {
    to.narrow(0, from, values.dim(0)).copy_from(values);
  };
  set(matrix.codes, first, encoded.codes);
  if (!matrix.is_double()) return set(matrix.scales, block, encoded.scales);
  set(matrix.scale_codes, block, encoded.scale_codes);
  set(matrix.scales, block / quant::kNf4ScaleBlock, encoded.scales);
  const std::vector<float> offsets(static_cast<size_t>(encoded.codes.dim(0)), encoded.offset);
  set(matrix.offsets, first, Tensor::from(offsets, MemoryTag::kWorkspace));
}

Tensor dequantized(const Nf4Matrix& matrix, DType dtype) {
  const Tensor y =
      Tensor::empty({matrix.rows(), matrix.columns()}, dtype, MemoryTag::kWorkspace, matrix.codes.device());
  const trace::Span span("dequantize", [&] {
    const int64_t read =
        matrix.codes.bytes() + matrix.scales.bytes() + (matrix.is_double() ? matrix.scale_codes.bytes() : 0);
    return trace::OpWork{{0, static_cast<double>(read + y.bytes())}, {}};
  });
  if (y.numel() > 0) primitive_functions(y.device()).dequantize_nf4(matrix, y);
  return y;
}

Var widened(const Nf4Matrix& matrix, DType dtype) {
  const auto make = [matrix, dtype] { return dequantized(matrix, dtype); };
  return {make(), nullptr, std::make_shared<Remake>(make)};
}

}  // namespace temper::primitives
