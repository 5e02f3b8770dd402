#include "primitives/nf4.h"

#include "base/error.h"
#include "base/tracing/trace.h"
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
  std::vector<Nf4Part> parts;
  int64_t own = 0;
  for (const int64_t count : rows) {
    parts.push_back({count, {{0, own, count}}});
    own += count;
  }
  return empty_nf4(parts, columns, {0, 0, columns}, double_quantization, device);
}

Nf4Matrix empty_nf4(const std::vector<Nf4Part>& parts, int64_t columns, const Slice& here,
                    bool double_quantization, Device device) {
  invariant(here.whole % 2 == 0 && here.count % 2 == 0, "two codes of nf4 share a byte");
  int64_t all = 0, elements = 0;
  for (const Nf4Part& part : parts)
    for (const Slice& slice : part.here) all += slice.count;
  std::vector<int64_t> starts(static_cast<size_t>(all));
  for (const Nf4Part& part : parts) {
    for (const Slice& slice : part.here)
      for (int64_t row = 0; row < slice.count; ++row)
        starts[static_cast<size_t>(slice.own + row)] = elements + (slice.whole + row) * columns + here.whole;
    if (!part.here.empty()) elements += elements_of(part.rows, columns, double_quantization);
  }
  const int64_t blocks = elements / quant::kNf4Block;
  const auto empty = [&](const Shape& shape, DType dtype) {
    return Tensor::empty(shape, dtype, MemoryTag::kWeights, device);
  };
  Nf4Matrix matrix;
  matrix.codes = empty({all, here.count / 2}, DType::kU8);
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
  const int64_t rows = encoded.codes.dim(0);
  set_nf4(matrix, {rows, {{0, first, rows}}}, {0, 0, matrix.columns()}, encoded);
}

void set_nf4(const Nf4Matrix& matrix, const Nf4Part& part, const Slice& columns, const quant::Nf4& encoded) {
  invariant(encoded.is_double() == matrix.is_double(), "codes fit the matrix that keeps them");
  if (part.here.empty()) return;
  const auto set = [](const Tensor& to, int64_t from, const Tensor& values) {
    to.narrow(0, from, values.dim(0)).copy_from(values);
  };
  const Slice& front = part.here.front();
  const Tensor at = matrix.starts.narrow(0, front.own, 1).on({});  // what empty_nf4() put there
  const int64_t whole_columns = 2 * encoded.codes.dim(1),
                block =
                    (*at.data<int64_t>() - front.whole * whole_columns - columns.whole) / quant::kNf4Block;
  for (const Slice& slice : part.here) {
    set(matrix.codes, slice.own,
        encoded.codes.narrow(0, slice.whole, slice.count).narrow(1, columns.whole / 2, columns.count / 2));
    if (!matrix.is_double()) continue;
    const std::vector<float> offsets(static_cast<size_t>(slice.count), encoded.offset);
    set(matrix.offsets, slice.own, Tensor::from(offsets, MemoryTag::kWorkspace));
  }
  if (!matrix.is_double()) return set(matrix.scales, block, encoded.scales);
  set(matrix.scale_codes, block, encoded.scale_codes);
  set(matrix.scales, block / quant::kNf4ScaleBlock, encoded.scales);
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

Var widened_again(const Nf4Matrix& matrix, DType dtype) {
  const auto make = [&matrix, dtype] { return dequantized(matrix, dtype); };
  return {make(), nullptr, std::make_shared<Remake>(make)};
}

}  // namespace temper::primitives
